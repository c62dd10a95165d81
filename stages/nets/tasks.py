"""A network of MediaPipe Tasks, shielded from MediaPipe's native code: built and closed within a deadline, and quiet.

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Picture = NDArray[np.uint8]  # h w 3, RGB

SETUP_SECONDS = 60.0  # the graph is built in about 0.2 s
CLOSE_SECONDS = 5.0  # a graph is closed in some milliseconds


class Landmarker:
    """A landmarker in IMAGE mode, on one CPU thread.

    VIDEO mode tracks, so that a frame's result would depend on which frames came before it in the same process.

    Args:
        kind: its class in `mediapipe.tasks.python.vision`.
        path: a task bundle.
        options: of the class named `kind` and `Options`, besides the file and the mode.

    Raises:
        RuntimeError: MediaPipe refuses the file, or system libraries that it needs are missing.
        TimeoutError: it did not answer within `SETUP_SECONDS`; the process is best ended then.
    """

    def __init__(self, kind: str, path: Path, **options: Any) -> None:
        def build() -> Any:
            return _built(kind, path, options)

        with stderr_without_chatter():
            self._task = within(SETUP_SECONDS, build, f"MediaPipe's graph for {path}")
            weakref.finalize(self, close, self._task)
            photo = photo_of_a_person()
            if photo is not None:  # else the first person found makes MediaPipe print two lines: no more than that
                self.detect(photo)

    def detect(self, picture: Picture) -> Any:
        """MediaPipe's result for one picture."""
        import mediapipe

        return self._task.detect(mediapipe.Image(mediapipe.ImageFormat.SRGB, np.ascontiguousarray(picture)))


def _built(kind: str, path: Path, options: Mapping[str, Any]) -> Any:
    try:
        from mediapipe.tasks.python import BaseOptions, vision

        mode = {"base_options": BaseOptions(model_asset_path=str(path)), "running_mode": vision.RunningMode.IMAGE}
        return getattr(vision, kind).create_from_options(getattr(vision, f"{kind}Options")(**mode, **options))
    except (OSError, ValueError, RuntimeError) as error:
        raise _refusal(path, error) from error


def close(task: Any) -> None:
    """Close the graph, or leave that to the system.

    Closing waits for a thread of MediaPipe's. It may have gone where the interpreter is ending, and it may be the one
    in which the collector of garbage calls this: then it would wait for itself, for ever.
    """
    try:
        within(CLOSE_SECONDS, task.close, "Closing MediaPipe's graph")
    except (RuntimeError, TimeoutError):
        task.close = lambda: None  # MediaPipe's __del__ would try, and complain, again


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


def photo_of_a_person() -> Picture | None:
    """The portrait that ships with matplotlib, on which mediapipe depends."""
    import matplotlib as mpl

    photo = cv2.imread(str(Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"))
    return None if photo is None else cv2.cvtColor(photo, cv2.COLOR_BGR2RGB)


_CHATTER = (
    "XNNPACK delegate",
    "InitGoogle",
    "inference_feedback_manager.cc",
    "landmark_projection_calculator.cc",
    "face_landmarker_graph.cc",
    "has an unaligned buffer",  # the network is copied instead of used where it lies in the file
)


@contextlib.contextmanager
def stderr_without_chatter() -> Iterator[None]:
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


def _refusal(path: Path, error: Exception) -> RuntimeError:
    """What to raise where MediaPipe cannot use a file, with what to install where that is why."""
    hint = "; install the system libraries libegl1 and libgles2" if "shared object" in str(error) else ""
    return RuntimeError(f"MediaPipe cannot use {path}: {error}{hint}")
