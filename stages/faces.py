"""Whose faces are where: found by YuNet or SCRFD, set upright, and embedded by a network of the ArcFace family.

Everything said of a face depends on its picture alone. The faces of all pictures of a call are embedded together, some
at a time, so that a photo with hundreds of faces takes no more memory than many photos with one.

Shapes: n faces of a call; boxes n 4, points n 5 2 as in `stages.nets.align`, embeddings n d of length 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import Image, field, pixels_of, views
from pipeline.stage import Drawing, Placement, Scope, Stage, Weights
from stages.nets import scrfd
from stages.nets.align import crop, scales, sharpness, similarity, turned
from stages.nets.detection import DETECTORS, PICTURES, detection
from stages.nets.instances import outline
from stages.nets.likeness import Things, by_boxes, cosine_figures, cosines
from stages.nets.masks import BOX, POINT
from stages.nets.recognition import NETWORKS, ROWS, Recogniser, stacked
from stages.nets.yunet import Found

LANDMARKS = ("right eye", "left eye", "nose", "right corner of the mouth", "left corner of the mouth")
YUNET_SIDE, YUNET_SCORE = 1280, 0.85  # see Config
BLURRED = 100.0  # variance of the Laplacian at which a picture is customarily called blurred; it counts one half
JPEG_QUALITY = 95  # 6 to 8 KB; embedded again, such a crop has a cosine of .998 with its face. At 85, 4 KB and .994

_TYPES = {"float16": pa.float16(), "float32": pa.float32()}


class Faces(Stage):
    """Faces, how they look at the camera, and embeddings whose cosine tells whether two are one person.

    On a GPU torch runs both networks, of detectors YuNet's two open ones. SCRFD is there too where onnxruntime can use
    it; otherwise a detector is a core's work beside the card (YuNet: 65 ms a picture of 2 MP). Without the detector's
    weights (`dummy_weights`) each picture has the same four faces (`stages.nets.placeholder`): such a benchmark holds
    alignment and embedding, and no detector's time.
    """

    scope = Scope.ROW
    placement = Placement(cpus=1.0, batch_rows=16, channels_last=True)
    devices = ("cpu", "cuda")

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Which networks, what they are shown, and what is kept.

        Raises:
            ValueError: a size or number that makes no sense, or a score outside 0 to 1.
        """

        detector: Literal["yunet", "yunet-s", "yunet-2023mar", "scrfd"] = "yunet"  # scrfd: for research, not for trade
        model: Literal["mobilefacenet", "arcface-r50", "auraface", "sface"] = "mobilefacenet"  # 2 ms a face, Apache-2.0
        # Short side of the pixels that faces are cut from, as in frame_1280; 0 is full size. Median cosine of a face of
        # 40, 64, 100, 160 px in 4000x3000 with its own large portrait: .84 .91 .95 .94 at full size, .53 .85 .94 .95 at
        # 1280, .10 .40 .76 .92 at 640.
        size: int = 1280
        # Longest side that the detector is shown; 0 for all pixels; None for 1280 (YuNet) or 640 (SCRFD, as published).
        # Of 120 faces of 40 px in 4000x3000 YuNet finds, at a score of .7, all at 1280 in 60 ms, 30 at 640 in 15 ms; of
        # 24 px, 37 at 1280 and all at full size, in over 1 s.
        detect_side: int | None = None
        # None for .85 (YuNet) or .5 (SCRFD, as published). YuNet's score of photos without people reaches .82 (a
        # motorcycle), of real faces from 20 px of what is shown on .85 to .96.
        min_score: float | None = None
        min_side: int = 16  # px of the box's shorter side, of the pixels read. At 12, the median cosine above is .32
        max_faces: int = 500  # of one picture, the surest first
        keep_crops: bool = False  # the aligned face as a JPEG, for contact sheets
        runtime: Literal["auto", "onnxruntime", "torch"] = "auto"  # onnxruntime on a CPU, torch on a GPU
        embedding: Literal["float16", "float32"] = "float16"  # how it is kept

        def __post_init__(self) -> None:
            for name, least in (("size", 0), ("detect_side", 0), ("min_side", 0), ("max_faces", 1)):
                if (value := getattr(self, name)) is not None and value < least:
                    raise ValueError(f"{name} must be at least {least}, not {value}")
            if self.min_score is not None and not 0 <= self.min_score <= 1:
                raise ValueError(f"min_score must lie between 0 and 1, not {self.min_score}")
            if self.detector == "scrfd" and self.shown % scrfd.STEP:
                raise ValueError(f"detect_side must be a multiple of {scrfd.STEP} for scrfd, not {self.shown}")

        @property
        def shown(self) -> int:
            """Longest side in px that the detector is shown; 0 for all pixels."""
            own = scrfd.SIDE if self.detector == "scrfd" else YUNET_SIDE
            return own if self.detect_side is None else self.detect_side

        @property
        def sure(self) -> float:
            """The least score of a face."""
            own = scrfd.MIN_SCORE if self.detector == "scrfd" else YUNET_SCORE
            return own if self.min_score is None else self.min_score

    @property
    def pixels(self) -> str:
        """The pixel column that the settings ask for."""
        return pixels_of(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels only: everything said is in shares of the picture, whatever its size."""
        return (self.pixels,)

    @property
    def face(self) -> pa.DataType:
        """What is said of one face."""
        embedding = pa.list_(_TYPES[self.config.embedding], NETWORKS[self.config.model].length)
        fields = [
            ("box", BOX),  # cut at the picture's edges; shares of width and height
            ("score", pa.float32()),  # the detector's, 0 to 1
            ("landmarks", pa.list_(POINT, len(LANDMARKS))),  # shares of width and height, may lie outside
            ("quality", pa.float32()),  # 0 to 1, see `qualities`
            ("yaw", pa.float32()),  # degrees, see `stages.nets.align.turned`
            ("pitch", pa.float32()),
            ("embedding", embedding),  # of length 1
        ]
        return pa.struct([*fields, *([("crop", pa.binary())] if self.config.keep_crops else [])])

    @property
    def outputs(self) -> pa.Schema:
        """`faces` and `face_count`; never null."""
        about = "faces, surest first: box, score, 5 landmarks, quality, yaw and pitch in degrees, embedding"
        return pa.schema(
            [
                field("faces", pa.list_(self.face), about),
                field("face_count", pa.int32(), "number of faces in `faces`"),
            ]
        )

    @property
    def weights(self) -> tuple[str, ...]:
        """A detector and a recognition network."""
        return (DETECTORS[self.config.detector], NETWORKS[self.config.model].weights)

    @property
    def dummy_weights(self) -> bool:  # type: ignore[override]  # it depends on the settings here
        """Not of SFace, whose architecture nobody tells."""
        return NETWORKS[self.config.model].blocks is not None

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Build both networks.

        Raises:
            RuntimeError: OpenCV refuses the detector's file.
            ValueError: onnxruntime refuses the detector's file; the recognition network is none that is covered, or is
                to be random and cannot; or onnxruntime was asked to use a GPU.
        """
        config, (detector, network) = self.config, self.weights
        runtime = config.runtime if config.runtime != "auto" else {"cpu": "onnxruntime"}.get(placement.device, "torch")
        if runtime == "onnxruntime" and placement.device != "cpu":
            where = repr(placement.device)
            raise ValueError(f"onnxruntime runs on the CPU only; choose runtime 'torch' or 'auto' on {where}")
        self._detect, self._batched = detection(
            config.detector,
            weights.get(detector),
            side=config.shown,
            min_score=config.sure,
            most=config.max_faces,
            runtime=runtime,
            placement=placement,
            phase=self.phase,
        )
        self._recognise = Recogniser(
            NETWORKS[config.model],
            weights.get(network),
            runtime=runtime,
            placement=placement,
            rows=self.chunk_rows.get("faces", ROWS),
            phase=self.phase,
        )

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The faces of each picture."""
        images = views(batch[self.pixels])
        parts = self.chunks(images, "pictures", PICTURES) if self._batched else [images]
        found = [self._large_enough(one) for part in parts for one in self._detect(part)]
        counts = [len(one.scores) for one in found]
        faces = self._faces(images, found, np.repeat(np.arange(len(images)), counts))
        offsets = pa.array(np.cumsum([0, *counts]), pa.int32())
        return pa.table([pa.ListArray.from_arrays(offsets, faces), pa.array(counts, pa.int32())], schema=self.outputs)

    def _large_enough(self, found: Found) -> Found:
        return found.taken(found.sides.min(axis=1) >= self.config.min_side)

    def _faces(self, images: list[Image], found: list[Found], owners: NDArray[np.int64]) -> pa.StructArray:
        """Arrow values of type `face` for all pictures, in their order; owners: n, the picture of each face."""
        boxes, points, scores = (
            np.concatenate([empty, *parts])
            for empty, parts in zip(_NONE, zip(*found, strict=True) if found else ([], [], []), strict=True)
        )
        transforms = similarity(points)
        yaw, pitch = turned(points)
        embeddings, sharp, files = [np.empty((0, NETWORKS[self.config.model].length), np.float32)], [], []
        for part in self.chunks(range(len(owners)), "faces", ROWS):
            with self.phase("preprocess"):
                crops = stacked([crop(images[owners[i]], transforms[i]) for i in part])
            embeddings.append(self._recognise(crops))  # counts its own phases
            with self.phase("postprocess"):
                sharp += [sharpness(one) for one in crops]
                files += [_jpeg(one) for one in crops] if self.config.keep_crops else []
        quality = qualities(scales(transforms), yaw, pitch, np.array(sharp))
        size = np.array([images[i].shape[1::-1] for i in owners], np.float32).reshape(-1, 2)
        columns = [
            _structs((boxes / np.tile(size, 2)).clip(0, 1), BOX),
            pa.array(scores),
            pa.FixedSizeListArray.from_arrays(_structs(points / size[:, None], POINT), len(LANDMARKS)),
            pa.array(quality, pa.float32()),
            pa.array(yaw),
            pa.array(pitch),
            self._kept(np.concatenate(embeddings)),
            *([pa.array(files, pa.binary())] if self.config.keep_crops else []),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.face))

    def _kept(self, embeddings: NDArray[np.float32]) -> pa.Array:
        values = embeddings.astype(self.config.embedding).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(values), embeddings.shape[1])

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Faces with a partner, how their boxes overlap, and the cosines of their embeddings."""
        first, second = Things.of(a["faces"]), Things.of(b["faces"])
        pairs = by_boxes(first, second)
        vectors = first.vectors("embedding"), second.vectors("embedding")
        alike = cosines(
            *(None if v is None else v[at] for v, at in zip(vectors, (pairs.first, pairs.second), strict=True))
        )
        mean = float(np.clip(alike.mean(), 0, 1)) if len(alike) else 1.0
        own = {"faces_found": pairs.found, "box_iou": pairs.mean_overlap()}
        return own | cosine_figures(alike) | {"drift": 1 - pairs.found * mean}

    def preview(self, row: Mapping[str, Any]) -> Drawing | None:
        """Boxes and landmarks; None without faces."""
        faces = row.get("faces")
        if not faces:
            return None
        lines = [line for face in faces for line in outline(**face["box"])]
        points = [(point["x"], point["y"]) for face in faces for point in face["landmarks"]]
        return Drawing(lines=lines, points=points, caption=f"{len(faces)} {'face' if len(faces) == 1 else 'faces'}")


_NONE = (np.empty((0, 4), np.float32), np.empty((0, 5, 2), np.float32), np.empty(0, np.float32))


def qualities(
    scale: NDArray[np.float64], yaw: NDArray[np.float32], pitch: NDArray[np.float32], sharp: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far embeddings can be relied on (n, 0 to 1): size times frontalness times sharpness.

    Size is 1 where the crop is not enlarged, else the picture's pixels for one of the crop; frontalness is cos(yaw)
    cos(pitch), 0 from the profile on; sharpness is v / (v + 100), v the variance of the Laplacian of the crop.
    """
    frontal = np.cos(np.radians(yaw)).clip(0) * np.cos(np.radians(pitch)).clip(0)
    return np.minimum(1, 1 / np.maximum(scale, 1e-9)) * frontal * sharp / (sharp + BLURRED)


def _jpeg(face: NDArray[np.uint8]) -> bytes:
    coded = cv2.imencode(".jpg", cv2.cvtColor(face, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return bytes(coded)


def _structs(values: NDArray[np.floating[Any]], dtype: pa.StructType) -> pa.StructArray:
    flat = values.reshape(-1, dtype.num_fields)
    return pa.StructArray.from_arrays(
        [pa.array(np.ascontiguousarray(column, np.float32)) for column in flat.T], fields=list(dtype)
    )
