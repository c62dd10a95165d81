"""The model bench: the cost of one model outside of a pipeline, by layer, precision and batch."""
