"""Frames to packets: clips, cut by a rule of the file alone, and packets of whole clips."""
