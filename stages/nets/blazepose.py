"""BlazePose as a function from one picture to arrays, shielded from the habits of MediaPipe's native code.

That code prints to the process's stderr, may wait for ever where its graph is wrong, misreads an array that is not
contiguous, and complains when the interpreter ends before it: none of this is a stage's business.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Picture = NDArray[np.uint8]  # h w 3, RGB
Body = NDArray[np.float32]  # p 33 5: x, y, z, visibility, presence
World = NDArray[np.float32]  # p 33 3: x, y, z

LANDMARKS = 33
SETUP_SECONDS = 60.0  # the graph is built in about 0.2 s
CLOSE_SECONDS = 5.0  # it is closed in some milliseconds


class BlazePose:
    """MediaPipe's PoseLandmarker in IMAGE mode, on one CPU thread.

    Args:
        path: a task bundle.
        max_people: of one picture.
        min_detection: confidence of the detector, 0 to 1.
        min_presence: confidence of the landmark network that there is a person, 0 to 1.

    Raises:
        RuntimeError: MediaPipe refuses the file, or system libraries that it needs are missing.
        TimeoutError: it did not answer within `SETUP_SECONDS`; the process is best ended then.
    """

    def __init__(self, path: Path, *, max_people: int, min_detection: float, min_presence: float) -> None:
        def build() -> Any:
            return _landmarker(path, max_people, min_detection, min_presence)

        with _stderr_without_chatter():
            self._landmarker = within(SETUP_SECONDS, build, f"MediaPipe's graph for {path}")
            weakref.finalize(self, _close, self._landmarker)
            photo = _photo_of_a_person()
            if photo is not None:  # else the first person found makes MediaPipe print two lines: no more than that
                self(photo)

    def __call__(self, picture: Picture) -> tuple[Body, World]:
        """The people of one picture, as MediaPipe finds them."""
        import mediapipe

        image = mediapipe.Image(mediapipe.ImageFormat.SRGB, np.ascontiguousarray(picture))
        result = self._landmarker.detect(image)
        body = [[(m.x, m.y, m.z, m.visibility, m.presence) for m in person] for person in result.pose_landmarks]
        world = [[(m.x, m.y, m.z) for m in person] for person in result.pose_world_landmarks]
        count = len(body)
        return np.array(body, np.float32).reshape(count, LANDMARKS, 5), np.array(world, np.float32).reshape(
            count, LANDMARKS, 3
        )


def _landmarker(path: Path, max_people: int, min_detection: float, min_presence: float) -> Any:
    try:
        from mediapipe.tasks.python import BaseOptions, vision

        options = vision.PoseLandmarkerOptions(
            base_options=BaseOptions(model_asset_path=str(path)),
            running_mode=vision.RunningMode.IMAGE,
            num_poses=max_people,
            min_pose_detection_confidence=min_detection,
            min_pose_presence_confidence=min_presence,
        )
        return vision.PoseLandmarker.create_from_options(options)
    except (OSError, ValueError, RuntimeError) as error:
        hint = "; install the system libraries libegl1 and libgles2" if "shared object" in str(error) else ""
        raise RuntimeError(f"MediaPipe cannot use {path}: {error}{hint}") from error


def _close(landmarker: Any) -> None:
    """Close the graph, or leave that to the system.

    Closing waits for a thread of MediaPipe's. It may have gone where the interpreter is ending, and it may be the one
    in which the collector of garbage calls this: then it would wait for itself, for ever.
    """
    try:
        within(CLOSE_SECONDS, landmarker.close, "Closing MediaPipe's graph")
    except (RuntimeError, TimeoutError):
        landmarker.close = lambda: None  # MediaPipe's __del__ would try, and complain, again


def within(seconds: float, work: Callable[[], T], what: str) -> T:
    """What `work` returns or raises, or TimeoutError when it takes longer; it is left behind in its thread then."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not outcome:
        raise TimeoutError(f"{what} was not ready within {seconds:g} s")
    return outcome[0]


def _photo_of_a_person() -> Picture | None:
    """The portrait that ships with matplotlib, on which mediapipe depends."""
    import matplotlib as mpl

    photo = cv2.imread(str(Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"))
    return None if photo is None else cv2.cvtColor(photo, cv2.COLOR_BGR2RGB)


_CHATTER = (
    "XNNPACK delegate",
    "InitGoogle",
    "inference_feedback_manager.cc",
    "landmark_projection_calculator.cc",
    "has an unaligned buffer",  # the network is copied instead of used where it lies in the file
)


@contextlib.contextmanager
def _stderr_without_chatter() -> Iterator[None]:
    """Pass on what is written to stderr meanwhile, but for lines that MediaPipe's native code prints in every process.

    No variable or option turns them off, so the descriptor itself is turned aside.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            aside.seek(0)
            kept = [line for line in aside if not any(word.encode() in line for word in _CHATTER)]
            os.write(2, b"".join(kept))
