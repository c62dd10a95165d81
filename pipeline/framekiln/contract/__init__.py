"""Everything that the author of a stage needs: the base class, declarations, columns and drawings.

`framekiln.contract.testing` checks a stage; `docs/stages.md` shows how to write one.
"""

from framekiln.contract.columns import (
    DIGEST as DIGEST,
    FRAME_INDEX as FRAME_INDEX,
    MEDIA_ID as MEDIA_ID,
    PIXELS as PIXELS,
    SOUND as SOUND,
    SOUND_RATE as SOUND_RATE,
    SOURCE as SOURCE,
    Image as Image,
    annotates as annotates,
    field as field,
    pack as pack,
    pixel_column as pixel_column,
    views as views,
)
from framekiln.contract.drawing import Area as Area, Drawing as Drawing, Label as Label, Legend as Legend
from framekiln.contract.limits import (
    Count as Count,
    Limits as Limits,
    Natural as Natural,
    NonNegative as NonNegative,
    Positive as Positive,
    Proportion as Proportion,
)
from framekiln.contract.placement import GpuMemory as GpuMemory, Placement as Placement
from framekiln.contract.stage import Media as Media, Scope as Scope, Stage as Stage, Table as Table, Weights as Weights
