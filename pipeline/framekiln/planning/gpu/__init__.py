"""The layout of models on a GPU: which are there together, and in what batches, by their memory and their speed.

co_location  one wave: the memory and time of its steps, and their processes and batches within the GPU's memory
packing      layouts of all waves, the cost of each, and the reasons for the best
scheduler    the best layout, as placements
"""
