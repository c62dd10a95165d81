"""Nsight Systems and Nsight Compute around a few calls of a model.

session     the commands, and what went wrong
target      the process that the tools start
reports     what they recorded, as figures
rules       findings of both
"""
