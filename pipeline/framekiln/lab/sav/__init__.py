"""Segmentation of videos in SA-V's layout: speed, memory, J and F of each object.

layout     frames and true masks of a folder
prompts    a point, a box or a mask from the ground truth
scores     J and F, counted as SA-V's evaluator does
trackers   models by name
runs       one object, tracked and scored
made       a video with known masks
"""
