"""Segmentation of videos in SA-V's layout: speed, memory, J and F of each object.

layout     frames and true masks of a folder, or of a made video
trackers   models by name, prompted with a point, a box or a mask from the ground truth
measure    each object, tracked and scored
scores     J and F, counted as SA-V's evaluator does
summary    models side by side
"""
