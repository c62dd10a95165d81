"""Nsight Systems and Nsight Compute around a few calls of a model.

commands   what is run, as lists of words
target     the process that the tools start
session    running the commands, and what went wrong
systems    an exported report of nsys, read into figures
compute    a table of ncu, read into figures
rules      findings of both
"""
