"""Shots of a video and the transitions between them."""

from stages.shots.stage import Features as Features
from stages.shots.stage import Shots as Shots
