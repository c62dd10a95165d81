"""Cells of a sweep, each measured in a child process."""
