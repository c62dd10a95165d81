"""Selections: rows of an output that a person chose, as a table that every later command takes.

Whoever prepares training data wants sharp frames with one person, no near-copies, one frame a shot, balanced. Each of
these is a column or a table of an output; a selection is what is left when all of them are asked for together.
"""
