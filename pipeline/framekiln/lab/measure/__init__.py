"""Measurements of one model in one process: time, memory, layers, results."""
