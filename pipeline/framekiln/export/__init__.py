"""Exports: an output's frames and their annotations, in the formats of training and labelling tools."""
