"""Faces: detection by YuNet or SCRFD, alignment, and embeddings by a network of the ArcFace family.

The result for a face depends on its image alone. The faces of all images of a call are embedded together, in chunks. A
photo with hundreds of faces therefore takes no more memory than many photos with one.

Shapes: n faces of a call; boxes n 4, points n 5 2 as in `framekiln_stages.faces.alignment`, embeddings n d of length 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract import Drawing, GpuMemory, Image, Placement, Stage, Weights, annotates, field, views
from framekiln.contract.limits import Count, Natural, Proportion
from framekiln.contract.words import counted
from framekiln_stages.faces.aligned_faces import Described, DeviceFaces, HostFaces
from framekiln_stages.faces.alignment import (
    THUMBNAIL,
    crop_scales,
    face_qualities,
    head_angles,
    orientations,
    similarity_transforms,
)
from framekiln_stages.faces.detectors import DETECTORS, IMAGES_PER_CHUNK, build_detector
from framekiln_stages.faces.recognizers import FACE_MB, NETWORKS, ROWS, Recognizer
from framekiln_stages.nets.faces import scrfd
from framekiln_stages.nets.faces.detections import FaceDetections
from framekiln_stages.shared.device_images import DeviceImages
from framekiln_stages.shared.masks import BOX, POINT, box_edges
from framekiln_stages.shared.result_agreement import Detections, cosine_figures, match_by_boxes, mean_or
from framekiln_stages.shared.settings import PixelStage
from framekiln_stages.shared.tables import (
    BOXES,
    FRACTIONS,
    NETWORK,
    UNIT_LENGTH,
    struct_array,
    struct_lists,
    vector_array,
)

LANDMARKS = ("right eye", "left eye", "nose", "right corner of the mouth", "left corner of the mouth")
YUNET_BYTES = 44  # bytes of a call, for each pixel of the detector's square input: 72 MB at 1280 px
YUNET_SIDE, YUNET_SCORE, YUNET_SCORE_ALONE = 1280, 0.6, 0.85  # see Config


class Faces(PixelStage):
    """Faces with box, landmarks, quality, head angles, and an embedding for comparing people by cosine.

    On a GPU torch runs the recognition network and YuNet, and onnxruntime SCRFD if it can use the GPU. On the CPU YuNet
    takes 65 ms an image of 2 MP. Without the detector's weights (`dummy_weights`) each image has the same four faces.
    Such a benchmark times alignment and embedding, and on a GPU the detector's two looks at each image.
    """

    finds = (("faces", "face", "faces"),)
    version = 6  # 6: `contrast` knows patterns; 5: `thumbnail`; 4: `sharpness`; 3: `orientation`; 2: a second look
    placement = Placement(channels_last=True)
    devices = ("cpu", "cuda")
    chunk_kinds = ("pictures", "faces")
    dummy_note = (
        "without its detector each image has the same four made faces; face counts and the detector's time are void"
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """Networks, their input sizes, and the kept faces and columns.

        Raises ValueError: `detect_side` does not suit SCRFD.
        """

        detector: Literal["yunet", "scrfd"] = "yunet"  # finds faces; scrfd: non-commercial
        # The network that embeds faces. This one takes 2 ms a face, Apache-2.0.
        model: Literal["mobilefacenet", "arcface-r50", "auraface", "sface"] = "mobilefacenet"
        # Short side of the pixels that faces are cut from, as in frame_1280; 0: full size. Median cosine of a face of
        # 40, 64, 100, 160 px in 4000x3000 with its own large portrait: 0.84 0.91 0.95 0.94 at full size, 0.53 0.85 0.94
        # 0.95 at 1280, 0.10 0.40 0.76 0.92 at 640.
        size: Natural = 1280
        # Longest side of the detector's input; 0: all pixels; None: 1280 (YuNet) or 640 (SCRFD, as published). At a
        # score of 0.7, YuNet detects of 120 faces of 40 px in 4000x3000 all at 1280 in 60 ms, and 30 at 640 in 15 ms.
        # Of 24 px it detects 37 at 1280, and all at full size in over 1 s.
        detect_side: Natural | None = None
        # Least score of a face. None: 0.6 (YuNet; 0.85 without a second look) or 0.5 (SCRFD, as published). The score
        # alone does not decide: faces of 16 px or more have 0.6 to 0.96, a dog's face up to 0.89, a head lamp 0.83.
        min_score: Proportion | None = None
        # Least evidence of a face: one third of its score and two thirds of its score in YuNet's second look. None:
        # no second look. Chosen on photos of sports, crowds and animals (`nets.faces.second_look`), checked on others
        # (docs/measuring/accuracy.md).
        min_look: Proportion | None = 0.77
        min_side: Natural = 16  # px, least shorter side of a box in the read pixels; at 12, the cosine above is 0.32
        max_faces: Count = 500  # most faces of one image, by score
        keep_crops: bool = False  # write the aligned face as a JPEG, for contact sheets
        runtime: Literal["auto", "onnxruntime", "torch"] = "auto"  # auto: onnxruntime on a CPU, torch on a GPU
        embedding: Literal["float16", "float32"] = "float16"  # stored type of an embedding

        def __post_init__(self) -> None:
            alone = YUNET_SCORE_ALONE if self.min_look is None else YUNET_SCORE
            self.settle("detect_side", scrfd.SIDE if self.detector == "scrfd" else YUNET_SIDE)
            self.settle("min_score", scrfd.MIN_SCORE if self.detector == "scrfd" else alone)
            if self.detector == "scrfd" and self.detect_side % scrfd.STEP:  # type: ignore[operator]  # settled
                raise ValueError(f"detect_side must be a multiple of {scrfd.STEP} for scrfd, not {self.detect_side}")

    @property
    def face(self) -> pa.DataType:
        embedding = pa.list_(pa.type_for_alias(self.config.embedding), NETWORKS[self.config.model].length)
        fields = [
            ("box", BOX),  # clipped to the image; shares of width and height
            ("score", pa.float32()),  # the detector's, 0 to 1; no probability
            ("landmarks", pa.list_(POINT, len(LANDMARKS))),  # shares of width and height, may lie outside
            ("quality", pa.float32()),  # 0 to 1, see `framekiln_stages.faces.alignment.face_qualities`
            ("sharpness", pa.float32()),  # variance of the Laplacian of the aligned face, see `alignment.sharpness`
            ("contrast", pa.float32()),  # contrast of eyes and mouth, see `framekiln_stages.faces.alignment.contrast`
            # Length of the embedding before it is scaled to 1: lower if the network sees less of a face.
            ("strength", pa.float32()),
            ("yaw", pa.float32()),  # degrees, see `framekiln_stages.faces.alignment.head_angles`
            ("pitch", pa.float32()),
            ("orientation", pa.int16()),  # see `framekiln_stages.faces.alignment.orientations`
            ("thumbnail", pa.list_(pa.uint8(), THUMBNAIL**2)),  # luma of the aligned face, row by row
            ("embedding", embedding),  # embedding of length 1
        ]
        return pa.struct([*fields, *([("crop", pa.binary())] if self.config.keep_crops else [])])

    @property
    def outputs(self) -> pa.Schema:
        """`faces` and `face_count`; never null."""
        network = NETWORKS[self.config.model]
        about = (
            f"faces, highest score first: {BOXES}; score; landmarks in this order: {', '.join(LANDMARKS)}, of the "
            f"person's own sides, x, y in {FRACTIONS}; quality, 0 to 1; sharpness of the aligned face, variance of its "
            "Laplacian; contrast of eyes and mouth, below 0.3 where covered, also by a pattern or a mirror; "
            "strength, the embedding's length before it was scaled; yaw and pitch in degrees, 0 into the "
            "camera, yaw above 0 to the right of the image, pitch above 0 up, both of the upright face; orientation, "
            "by which the face is turned clockwise in the image: 0, 90, 180 or 270 degrees; thumbnail, luma of the "
            f"aligned face in {THUMBNAIL} by {THUMBNAIL} px, row by row; embedding by "
            f"{self.config.model}, {network.length} {self.config.embedding}, {UNIT_LENGTH}"
        )
        faces = annotates(
            field("faces", pa.list_(self.face), about),
            kind="faces",
            category="face",
            keypoints=[name.replace(" ", "_") for name in LANDMARKS],
        )
        return pa.schema(
            [
                faces.with_metadata({**faces.metadata, NETWORK: self.config.model}),
                field("face_count", pa.int32(), "number of faces in `faces`"),
            ]
        )

    @property
    def weights(self) -> tuple[str, ...]:
        return (DETECTORS[self.config.detector], NETWORKS[self.config.model].weights)

    @property
    def dummy_weights(self) -> bool:  # type: ignore[override]  # it depends on the settings here
        """False for SFace: its architecture is not published."""
        return NETWORKS[self.config.model].blocks is not None

    def gpu_memory(self, placement: Placement) -> GpuMemory | None:
        """See `Stage`: YuNet's part is in fp32."""
        weights_mb = NETWORKS[self.config.model].weights_mb
        if self.config.detector == "scrfd" or not weights_mb:
            return None
        pictures = YUNET_BYTES * (self.config.detect_side or YUNET_SIDE) ** 2 * 1e-6
        of_faces = FACE_MB * placement.chunks.get("faces", ROWS)
        call_mb = max(pictures * placement.chunks.get("pictures", IMAGES_PER_CHUNK), of_faces)
        return GpuMemory(weights_gb=weights_mb / 1e3, call_gb=call_mb / 1e3)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Build both networks.

        Raises RuntimeError: OpenCV rejects the detector's file. Raises ValueError: onnxruntime rejects it, the
        recognition network is not supported or has no random weights, or runtime "onnxruntime" is configured on a GPU.
        """
        config, (detector, network) = self.config, self.weights
        runtime = config.runtime if config.runtime != "auto" else {"cpu": "onnxruntime"}.get(placement.device, "torch")
        if runtime == "onnxruntime" and placement.device != "cpu":
            where = repr(placement.device)
            raise ValueError(f"onnxruntime runs on the CPU only; choose runtime 'torch' or 'auto' on {where}")
        self._placement = placement
        self._on_device = placement.device != "cpu"  # launches and waits cost more than arithmetic there
        self._detect, self._batched = build_detector(
            config.detector,
            weights.get(detector),
            side=config.detect_side,
            min_score=config.min_score,
            min_look=config.min_look,
            max_faces=config.max_faces,
            runtime=runtime,
            placement=placement,
            phase=self.phase,
        )
        self._recognize = Recognizer(
            NETWORKS[config.model],
            weights.get(network),
            runtime=runtime,
            placement=placement,
            rows=self.chunk_sizes.get("faces", ROWS),
            phase=self.phase,
        )

    def __call__(self, batch: pa.Table) -> pa.Table:
        images = views(batch[self.pixels])
        crops = (DeviceFaces if self._on_device else HostFaces)(
            self._recognize, self.phase, keep=self.config.keep_crops
        )
        several = self._batched or self._on_device
        detections: list[FaceDetections] = []
        for chunk in self.chunks(images, "pictures", IMAGES_PER_CHUNK) if several else [images]:
            detections += self._detect_in(chunk, crops)
        counts = [len(faces.scores) for faces in detections]
        owners = np.repeat(np.arange(len(images)), counts)
        described = crops.describe(lambda numbers: self.chunks(numbers, "faces", ROWS))
        values = self._make_values(images, FaceDetections.concatenate(detections), owners, described)
        offsets = pa.array(np.cumsum([0, *counts]), pa.int32())
        return pa.table([pa.ListArray.from_arrays(offsets, values), pa.array(counts, pa.int32())], schema=self.outputs)

    def _detect_in(self, images: Sequence[Image], crops: HostFaces | DeviceFaces) -> list[FaceDetections]:
        uploaded = None
        if self._on_device:
            uploaded = DeviceImages(images, self._placement, self.phase)
        detections = self._detect(images, uploaded)
        detections = [faces.select(faces.sides.min(axis=1) >= self.config.min_side) for faces in detections]
        owners = np.repeat(np.arange(len(images)), [len(faces.scores) for faces in detections])
        transforms = similarity_transforms(FaceDetections.concatenate(detections).points)
        if isinstance(crops, DeviceFaces):
            assert uploaded is not None
            crops.add(uploaded, owners, transforms)
        else:
            crops.add(images, owners, transforms)
        return detections

    def _make_values(
        self, images: Sequence[Image], faces: FaceDetections, owners: NDArray[np.int64], described: Described
    ) -> pa.StructArray:
        """Return the faces of all images as values of `face`; `owners`: n, the index of each face's image."""
        yaw, pitch = head_angles(faces.points)
        transforms = similarity_transforms(faces.points)
        size = np.array([images[i].shape[1::-1] for i in owners], np.float32).reshape(-1, 2)
        columns = [
            struct_array((faces.boxes / np.tile(size, 2)).clip(0, 1), BOX),
            pa.array(faces.scores),
            struct_lists(faces.points / size[:, None], POINT),
            pa.array(face_qualities(crop_scales(transforms), yaw, pitch, described.sharpness), pa.float32()),
            pa.array(described.sharpness, pa.float32()),
            pa.array(described.contrast, pa.float32()),
            pa.array(described.strengths, pa.float32()),
            pa.array(yaw),
            pa.array(pitch),
            pa.array(orientations(transforms)),
            vector_array(described.thumbnails, "uint8"),
            vector_array(described.embeddings, self.config.embedding),
            *([pa.array(described.files, pa.binary())] if self.config.keep_crops else []),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.face))

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Draw boxes and landmarks; None without faces."""
        faces = row.get("faces")
        if not faces:
            return None
        edges = [edge for face in faces for edge in box_edges(face["box"])]
        points = [(point["x"], point["y"]) for face in faces for point in face["landmarks"]]
        return Drawing(lines=edges, points=points, caption=counted(len(faces), "face"))

    def agreement(self, a: pa.Table, b: pa.Table, table: str = "") -> dict[str, float] | None:  # noqa: ARG002
        """Return the share of matched faces, the overlap of their boxes, and the cosines of their embeddings."""
        first, second = (Detections.from_column(run["faces"]) for run in (a, b))
        matches = match_by_boxes(first, second)
        cosines = matches.cosines(*(run.vectors("embedding") for run in (first, second)))
        mean = float(np.clip(mean_or(1.0, cosines), 0, 1))
        figures = {"faces_found": matches.share, "box_iou": matches.mean_iou()}
        return figures | cosine_figures(cosines) | {"drift": 1 - matches.share * mean}
