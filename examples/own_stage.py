"""Shows a stage of your own: a function that gets each frame and gives a column."""

import tempfile
from pathlib import Path

import pyarrow as pa

import framekiln
from framekiln.media.samples import make


@framekiln.stage(inputs="frame_224", outputs={"sharpness": pa.float32()})
def sharpness(image):
    """Mean difference of neighbouring pixels, 0 to 255."""
    return abs(image[:, 1:].astype(int) - image[:, :-1]).mean()


folder = Path(tempfile.mkdtemp())
make(folder)
output = framekiln.run(folder, "out/own", stages=["lighting", sharpness])
frames = output.table("frames").to_table(columns=["media_id", "frame_index", "sharpness", "exposure"]).to_pandas()
print(frames.sort_values("sharpness").tail(3))
blurred = frames.loc[frames["sharpness"].idxmin()]
print("The least sharp frame:", output.frame(blurred["media_id"], int(blurred["frame_index"])).shape)
