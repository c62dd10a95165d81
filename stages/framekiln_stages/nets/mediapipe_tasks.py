"""MediaPipe's landmark networks: built and closed within a timeout, silent, one image to arrays.

MediaPipe prints to the process's stderr. A wrong graph may never return, a non-contiguous array is misread, and an
error is printed if the interpreter ends first. This module hides all that from the stages.

Shapes: p people or f faces of one image. A `Body` is float32 p 33 5, a `World` p 33 3 in metres. A `Mesh` is float32
f 468 3: x and y in shares of width and height, z in the unit of x and smaller the nearer.
"""

import contextlib
import os
import queue
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image
from framekiln_stages.shared.skeleton import LANDMARKS

T = TypeVar("T")

SETUP_SECONDS = 60.0  # the graph is built in about 0.2 s
CLOSE_SECONDS = 5.0  # a graph is closed in some milliseconds


class Landmarker:
    """A landmarker in IMAGE mode, on one CPU thread a call.

    VIDEO mode tracks: a frame's result would depend on earlier frames in the same process.

    Args:
        path: a task bundle.
        count: most people or faces of one image.
        min_detection: confidence of the detector, 0 to 1.
        min_presence: confidence of the landmark network that there is a person or face, 0 to 1.
        copies: graphs, so that as many threads may call at once; one more waits for a graph.

    Raises:
        RuntimeError: MediaPipe refuses the file, or system libraries are missing.
        TimeoutError: MediaPipe does not answer within `SETUP_SECONDS`; end the process then.
    """

    kind: ClassVar[str]  # as in the names of MediaPipe's classes and options: "Pose" or "Face"
    options: Mapping[str, Any] = MappingProxyType({})  # further options of this kind of landmarker

    def __init__(self, path: Path, *, count: int, min_detection: float, min_presence: float, copies: int = 1) -> None:
        noun = self.kind.lower()
        options = {
            f"num_{noun}s": count,
            f"min_{noun}_detection_confidence": min_detection,
            f"min_{noun}_presence_confidence": min_presence,
            **self.options,
        }
        with stderr_without_chatter():
            build = partial(_build, f"{self.kind}Landmarker", path, options)
            self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
            for _ in range(copies):
                graph = within(SETUP_SECONDS, build, f"MediaPipe's graph for {path}")
                weakref.finalize(self, close, graph)
                self._free.put(graph)
            photo = photo_of_a_person()
            if photo is not None:  # without it, MediaPipe prints two lines at the first person
                for _ in range(copies):
                    self.detect(photo)

    def detect(self, image: Image) -> Any:
        import mediapipe

        graph = self._free.get()
        try:
            return graph.detect(mediapipe.Image(mediapipe.ImageFormat.SRGB, np.ascontiguousarray(image)))
        finally:
            self._free.put(graph)


def _build(kind: str, path: Path, options: Mapping[str, Any]) -> Any:
    try:
        from mediapipe.tasks.python import BaseOptions, vision

        mode = {"base_options": BaseOptions(model_asset_path=str(path)), "running_mode": vision.RunningMode.IMAGE}
        return getattr(vision, kind).create_from_options(getattr(vision, f"{kind}Options")(**mode, **options))
    except (OSError, ValueError, RuntimeError) as error:
        hint = "; install the system libraries libegl1 and libgles2" if "shared object" in str(error) else ""
        raise RuntimeError(f"MediaPipe cannot use {path}: {error}{hint}") from error


def close(task: Any) -> None:
    """Close the graph, or leave it to the end of the process.

    Closing waits for a thread of MediaPipe. That thread may be gone when the interpreter ends. It may also be the
    thread in which the garbage collector calls this, which would deadlock.
    """
    try:
        within(CLOSE_SECONDS, task.close, "Closing MediaPipe's graph")
    except (RuntimeError, TimeoutError):
        task.close = lambda: None  # MediaPipe's __del__ would try again, and print an error


def within(seconds: float, work: Callable[[], T], subject: str) -> T:
    """Return or raise the result of `work`; raise TimeoutError if it takes longer, while its thread continues."""
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not wait([future], seconds).done:
        raise TimeoutError(f"{subject} was not ready within {seconds:g} s")
    return future.result()


def photo_of_a_person() -> Image | None:
    """Return the portrait of matplotlib, a dependency of mediapipe."""
    import matplotlib as mpl

    photo = cv2.imread(str(Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"))
    return None if photo is None else cv2.cvtColor(photo, cv2.COLOR_BGR2RGB)


_CHATTER = (
    "XNNPACK delegate",
    "InitGoogle",
    "inference_feedback_manager.cc",
    "landmark_projection_calculator.cc",
    "face_landmarker_graph.cc",
    "has an unaligned buffer",  # the network is copied instead of mapped from the file
)


@contextlib.contextmanager
def stderr_without_chatter() -> Iterator[None]:
    """Pass on stderr in this block, without the lines that MediaPipe's native code prints in every process.

    No variable or option turns them off, so the file descriptor itself is redirected.
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


Body = NDArray[np.float32]  # p 33 5: x, y, z, visibility, presence
World = NDArray[np.float32]  # p 33 3: x, y, z


class BlazePose(Landmarker):
    """MediaPipe's PoseLandmarker."""

    kind = "Pose"

    def __call__(self, image: Image) -> tuple[Body, World]:
        """Return the people that MediaPipe finds in one image."""
        result = self.detect(image)
        body = [[(m.x, m.y, m.z, m.visibility, m.presence) for m in person] for person in result.pose_landmarks]
        world = [[(m.x, m.y, m.z) for m in person] for person in result.pose_world_landmarks]
        return (
            np.array(body, np.float32).reshape(-1, LANDMARKS, 5),
            np.array(world, np.float32).reshape(-1, LANDMARKS, 3),
        )


Mesh = NDArray[np.float32]  # f 468 3

POINTS = 468  # the ten points of the irises that may follow are left out: not every network has them
_SHAPES = "face_blendshapes.tflite"  # the member of a bundle


class FaceMesh(Landmarker):
    """MediaPipe's FaceLandmarker, from a task bundle with or without blendshapes."""

    kind = "Face"

    def __init__(self, path: Path, **choices: Any) -> None:
        self.options = {
            "output_face_blendshapes": zipfile.is_zipfile(path) and _SHAPES in zipfile.ZipFile(path).namelist()
        }
        super().__init__(path, **choices)

    def __call__(self, image: Image) -> tuple[Mesh, list[dict[str, float]]]:
        """Return the faces of one image, and the blendshapes of each by name, 0 to 1; empty without their network."""
        result = self.detect(image)
        mesh = [[(point.x, point.y, point.z) for point in face[:POINTS]] for face in result.face_landmarks]
        shapes = [{shape.category_name: shape.score for shape in face} for face in result.face_blendshapes]
        return np.array(mesh, np.float32).reshape(-1, POINTS, 3), shapes or [{} for _ in mesh]
