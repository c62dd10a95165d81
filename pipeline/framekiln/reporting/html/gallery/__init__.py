"""Frames of a run with the results of each step drawn on them."""
