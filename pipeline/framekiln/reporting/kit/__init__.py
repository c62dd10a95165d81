"""What every page and the terminal are made of.

formatting   numbers, times and values as texts
tables       columns and rows, drawn by `kit.html` and the terminal alike
lines        curves, drawn by `kit.html`
histograms   distributions of columns, and the places of their bars
pages        templates to one file
"""
