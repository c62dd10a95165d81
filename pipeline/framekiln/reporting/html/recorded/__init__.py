"""Drawings of a run's records: the timeline of its processes, and its machines."""
