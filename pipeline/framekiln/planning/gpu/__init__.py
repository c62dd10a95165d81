"""The layout of models on a GPU: which are there together, and in what batches, by their memory and their speed."""
