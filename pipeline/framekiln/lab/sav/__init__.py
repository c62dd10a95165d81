"""Segmentation of videos in SA-V's layout: speed, memory, J and F of each object."""
