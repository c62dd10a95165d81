"""The layout of models on a GPU: which run together, and in what batches, by memory and speed."""
