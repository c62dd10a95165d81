"""Plain functions as stages."""

import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.function_stage import stage


@stage(inputs="frame_224", outputs={"brightness": pa.float32()})
def brightness(image):
    """Mean of all channels."""
    return image.mean()


@stage(inputs=("frame_224", "time_s"), outputs=[field("sides", pa.list_(pa.int32()), "height, width", "px"),
                                                field("moment", pa.string(), "the time in words")])  # fmt: skip
def described(image, time_s):
    return {"moment": None if time_s is None else f"{time_s:.2f}", "sides": image.shape[:2]}


@stage(inputs="sound", outputs={"loudest": pa.int16()})
def loudest(sound):
    return None if sound is None else abs(sound).max()
