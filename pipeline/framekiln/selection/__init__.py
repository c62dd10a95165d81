"""Selections: rows of an output that a person chose, as a table for all later commands.

Training data should be sharp frames with one person, without near-copies, one frame a shot, balanced. Each of these is
a column or a table of an output; a selection is the rows that meet all requirements together.
"""
