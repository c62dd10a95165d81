"""The fingerprint of each frame, from which `duplicates` finds its copies.

It takes 1.3 KB a photo and 46 bytes a frame of a video.
"""

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract import DIGEST, Placement, Stage, Weights, field, views
from framekiln_stages.duplicates.hashes import SIDE, WINDOWS, Bytes, hash_windows, is_flat, thumbnail
from framekiln_stages.shared.black_bars import find_bars

HASH = pa.binary(16)
EACH_S = 0.32  # s of a video from a frame with windows to the next: they take longer than the rest of a frame
OUTPUTS = pa.schema(
    [
        field("picture_hash", HASH, "signs of 128 low frequencies of the picture without bars; null if it is flat"),
        field(
            "crop_hashes",
            pa.binary(16 * (len(WINDOWS) - 1)),
            "the same for 15 windows of 0.9 of its sides; of photos, and of a frame of a video each 0.32 s",
        ),
        field("content_digest", DIGEST, "BLAKE2b of the file's bytes; photos and animations only"),
        field("thumbnail", pa.binary(SIDE * SIDE), "luma of the picture without bars, at 32 by 32 px; photos only"),
        field(
            "colours",
            pa.float32(),
            "how far colours are from a single tone, as of sepia: their root mean square distance from the best curve "
            "over brightness, at 32 by 32 px; 0 in grey photos, up to 1.6 in toned ones (JPEG 60); photos only",
            "code",
        ),
    ]
)


class Fingerprint(Stage):
    """Perceptual hashes of each frame, for photos and some frames also of windows; for photos a thumbnail."""

    thread_safe = True
    version = 7  # 7: colours; 6: windows by time; 5: windows in frames of videos
    inputs = ("frame_224", "time_s", "fps", "media_type", "digest")
    outputs = OUTPUTS

    def setup(self, weights: Weights, placement: Placement) -> None:  # noqa: ARG002
        """Limit OpenCV to one thread: other workers use the other cores."""
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        rows = []
        with self.phase("infer"):
            known = zip(*(batch[name].to_pylist() for name in self.inputs[1:]), strict=True)
            for image, (time, fps, kind, digest) in zip(views(batch["frame_224"]), known, strict=True):
                luma, is_photo = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), kind == "photo"
                luma = np.ascontiguousarray(find_bars(luma, any_tone=is_photo).cut(luma))
                count = len(WINDOWS) if is_photo or _is_next(time, fps) else 1
                hashes = [] if is_flat(luma) else [row.tobytes() for row in hash_windows(luma, count)]
                rows.append(
                    {
                        "picture_hash": hashes[0] if hashes else None,
                        "crop_hashes": b"".join(hashes[1:]) if len(hashes) > 1 else None,
                        "thumbnail": thumbnail(luma).tobytes() if hashes and is_photo else None,
                        "content_digest": digest,
                        "colours": measure_colours(image) if hashes and is_photo else None,
                    }
                )
        return pa.Table.from_pylist(rows, schema=OUTPUTS)


def measure_colours(image: Bytes) -> float:
    """Return the root mean square distance (codes) of RGB (h w 3) from the best curve over brightness."""
    cells = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA).reshape(-1, 3) / 255.0
    level = cells.mean(axis=1, keepdims=True)
    curve = np.concatenate((np.ones_like(level), level, level**2), axis=1)
    beside = cells - level
    beside -= curve @ np.linalg.lstsq(curve, beside, rcond=None)[0]
    return float(255 * np.sqrt((beside**2).sum(axis=1).mean()))


def _is_next(time: float, fps: float | None) -> bool:
    """Return whether a frame is the nearest to a multiple of `EACH_S`, by the file's average rate.

    A row knows no other times. So a frame that lasts longer than the average can be left out.
    """
    return not fps or (time + 0.5 / fps) % EACH_S < 1 / fps
