"""Technical quality of each frame, and the spans of a video in which the picture stands still."""

from framekiln_stages.quality.frozen import Frozen as Frozen
from framekiln_stages.quality.stage import Quality as Quality
