"""Metadata that cameras and editors wrote into a file: time, place, equipment and exposure."""

from framekiln_stages.metadata.stage import Metadata as Metadata
