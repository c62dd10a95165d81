"""A small collection for trials: three photos from dependencies, and clips with sound made from them.

python -m framekiln.media.samples FOLDER
"""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

FPS = 25
SIDE = (480, 360)  # width, height of the clips
RATE = 16_000  # Hz
SECONDS = 3

Image = NDArray[np.uint8]


def photos() -> dict[str, Path]:
    """Return the paths of the photos inside installed packages."""
    sklearn = _find_package("sklearn") / "datasets/images"
    matplotlib = _find_package("matplotlib") / "mpl-data/sample_data"
    return {
        "china.jpg": sklearn / "china.jpg",
        "flower.jpg": sklearn / "flower.jpg",
        "grace_hopper.jpg": matplotlib / "grace_hopper.jpg",
    }


def _find_package(name: str) -> Path:
    """Return the folder of a package, without importing it, which takes a second."""
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None, name
    return Path(spec.origin).parent


def pan(photo: Image, frames: int) -> list[Image]:
    """Return frames of a window that moves over the photo from left to right."""
    width, height = SIDE
    scale = max(height / photo.shape[0], 1.3 * width / photo.shape[1])
    large = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    room = large.shape[1] - width
    top = (large.shape[0] - height) // 2
    lefts = [round(room * i / (frames - 1)) for i in range(frames)]
    return [np.ascontiguousarray(large[top : top + height, left : left + width]) for left in lefts]


def dim(frames: list[Image]) -> list[Image]:
    """Return the same frames with the light reduced in the second half."""
    half = len(frames) // 2
    return [f if i < half else (f * 0.35).astype(np.uint8) for i, f in enumerate(frames)]


def tone(seconds: float, hertz: float) -> NDArray[np.int16]:
    """Return a tone that swells twice a second; 1 x samples at 16 kHz."""
    t = np.arange(int(seconds * RATE)) / RATE
    return (9000 * np.sin(2 * np.pi * hertz * t) * np.sin(2 * np.pi * t) ** 2).astype(np.int16)[None, :]


def write_clip(path: Path, frames: list[Image], sound: NDArray[np.int16]) -> None:
    """Write a clip in H.264 and AAC."""
    import av

    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=FPS)
        video.width, video.height, video.pix_fmt = *SIDE, "yuv420p"
        video.options = {"crf": "20", "g": "25", "threads": "1"}
        audio = container.add_stream("aac", rate=RATE, layout="mono")
        for image in frames:
            container.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(video.encode(None))
        block = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound), format="s16", layout="mono")
        block.sample_rate, block.pts = RATE, 0
        container.mux(audio.encode(block))
        container.mux(audio.encode(None))


def make(folder: Path) -> None:
    """Write the collection: 3 photos and 3 clips, 1 MB."""
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    images = {}
    for name, source in photos().items():
        shutil.copyfile(source, folder / "photos" / name)
        images[name] = cv2.cvtColor(cv2.imread(str(source)), cv2.COLOR_BGR2RGB)
    count = FPS * SECONDS
    moving = {name: pan(image, count) for name, image in images.items()}
    write_clip(folder / "clips" / "pan.mp4", moving["grace_hopper.jpg"], tone(SECONDS, 440))
    write_clip(folder / "clips" / "cut.mp4", moving["china.jpg"][:40] + moving["flower.jpg"][:35], tone(SECONDS, 220))
    write_clip(folder / "clips" / "lights-out.mp4", dim(moving["china.jpg"]), tone(SECONDS, 330))


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "samples/media")
    make(place)
    print(f"3 photos and 3 clips are in {place}")
