"""Removal of objects from images: LaMa paints over masks; every other pixel stays as it is."""

from framekiln_stages.inpaint.stage import Inpaint as Inpaint
