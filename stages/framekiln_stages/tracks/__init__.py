"""Tracks of people from frame to frame within a shot, with smoothed landmarks and bridged gaps."""

from framekiln_stages.tracks.stage import Tracks as Tracks
