"""Offset between the sound of a video and the lips of its speakers."""

from stages.sync.stage import Sync as Sync
