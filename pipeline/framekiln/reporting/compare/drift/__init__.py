"""Differences between the results of two runs."""
