"""Measurement of each step alone on a GPU: memory and rate by batch, for plans and predictions."""
