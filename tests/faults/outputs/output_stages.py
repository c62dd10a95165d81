"""A stage whose results fill every kind of file that an output has."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.stage import Stage

_BOX = pa.struct([(name, pa.float32()) for name in ("x0", "y0", "x1", "y1")])
_FACE = pa.struct(
    [("box", _BOX), ("score", pa.float32()), ("quality", pa.float32()), ("embedding", pa.list_(pa.float32(), 8))]
)


class Portraits(Stage):
    """One face on each frame, of two people by turns, and an image of it; it raises on one frame."""

    inputs = ("frame_index",)
    outputs = pa.schema(
        [field("faces", pa.list_(_FACE), "one face"), field("portrait", pa.large_binary(), "an encoded image")]
    )
    refused = 5  # frame

    def __call__(self, batch):
        rows = [self._row(number) for number in batch["frame_index"].to_pylist()]
        return pa.Table.from_pylist(rows, schema=self.outputs)

    def _row(self, number):
        if number == self.refused:
            raise ValueError("no face looks like this")
        person = number % 2
        vector = np.eye(8)[person] + 0.05 * np.random.default_rng(number).normal(size=8)
        face = {"box": {"x0": 0.0, "y0": 0.0, "x1": 0.9, "y1": 0.9}, "score": 0.9, "quality": 0.9}
        image = cv2.imencode(".png", np.full((4, 4, 3), 50 * person + number, np.uint8))[1].tobytes()
        return {"faces": [face | {"embedding": vector.astype(np.float32).tolist()}], "portrait": image}
