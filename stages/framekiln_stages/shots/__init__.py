"""Shots of a video and the transitions between them."""

from framekiln_stages.shots.stage import Features as Features
from framekiln_stages.shots.stage import Shots as Shots
