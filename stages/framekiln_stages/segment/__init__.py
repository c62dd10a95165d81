"""Masks of everything in an image, or of prompted objects, by Segment Anything 2.1."""

from framekiln_stages.segment.stage import Segment as Segment
