"""The layout of models on a GPU: which are there together, and in what batches, by their memory and their speed.

requirements   memory and time of a step, at one batch or another
co_location    one wave: its processes and batches within the GPU's memory
packing        layouts of all waves, and the cost of each
scheduler      the best layout, as placements
explanations   the reasons for it, in sentences
"""
