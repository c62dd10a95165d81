"""Shots of a video and the transitions between them."""

from stages.shots.stage import Features, Shots

__all__ = ["Features", "Shots"]
