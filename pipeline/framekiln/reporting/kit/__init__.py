"""The parts of every page and of the terminal.

formatting   numbers, times and values as texts
tables       columns and rows, drawn by `kit.html` and the terminal alike
lines        curves, drawn by `kit.html`
histograms   distributions of columns, and the places of their bars
pages        templates to one file
"""
