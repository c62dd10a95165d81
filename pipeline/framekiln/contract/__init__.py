"""All that the author of a stage needs: the base class, its declarations, columns and drawings.

`framekiln.contract.testing` checks a stage; `docs/stages.md` shows how to write one.
"""

from framekiln.contract.columns import (
    DIGEST,
    FRAME_INDEX,
    MEDIA_ID,
    PIXELS,
    SOUND,
    SOUND_RATE,
    SOURCE,
    Image,
    annotates,
    field,
    pack,
    pixel_column,
    views,
)
from framekiln.contract.drawing import Area, Drawing, Label, Legend
from framekiln.contract.limits import Count, Limits, Natural, NonNegative, Positive, Proportion
from framekiln.contract.placement import GpuMemory, Placement
from framekiln.contract.stage import Media, Scope, Stage, Table, Weights

__all__ = [
    "DIGEST",
    "FRAME_INDEX",
    "MEDIA_ID",
    "PIXELS",
    "SOUND",
    "SOUND_RATE",
    "SOURCE",
    "Area",
    "Count",
    "Drawing",
    "GpuMemory",
    "Image",
    "Label",
    "Legend",
    "Limits",
    "Media",
    "Natural",
    "NonNegative",
    "Placement",
    "Positive",
    "Proportion",
    "Scope",
    "Stage",
    "Table",
    "Weights",
    "annotates",
    "field",
    "pack",
    "pixel_column",
    "views",
]
