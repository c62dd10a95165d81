"""Shows a first run: photos and clips in, tables and a report out, of a folder that is named or of samples."""

import sys
import tempfile
from pathlib import Path

import framekiln
from framekiln.media.samples import make

if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
else:
    folder = Path(tempfile.mkdtemp())
    make(folder)  # three photos and three clips

output = framekiln.run(folder, "out/first", stages=["lighting", "flow"], progress=True)
print(output)  # files, frames, errors, and where the report is

frames = output.table("frames").to_table(columns=["media_id", "exposure", "motion_mean"]).to_pandas()
print(frames.groupby("media_id").mean())
