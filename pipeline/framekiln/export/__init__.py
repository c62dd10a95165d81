"""Exports: an output's frames and what was found on them, in the formats of training and labelling tools."""
