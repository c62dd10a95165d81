"""Offset between the sound of a video and the lips of its speakers."""

from framekiln_stages.sync.stage import Sync as Sync
