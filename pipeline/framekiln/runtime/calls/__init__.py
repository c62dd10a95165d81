"""Calls of stages: batches, one stage's calls, and all of a packet's."""
