"""Exposure, contrast, colour and direction of the light in each frame, and their steadiness over a video."""

from framekiln_stages.lighting.stage import Lighting as Lighting
from framekiln_stages.lighting.stage import Steadiness as Steadiness
