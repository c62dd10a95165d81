"""Equality of GPU and CPU: each stage's model calls on the same photos, in each precision, and uploads in turns.

The outputs of all model calls of a stage are compared, before thresholds turn a small difference into another mask or
category. So preprocessing, uploads and the model are compared. Random weights are the same on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.gpu.options import GpuOptions, Recorder
from benchmarks.gpu.stage_steps import STAGES, Case, measured, step_of
from benchmarks.made_rows import rows_for
from framekiln.contract.placement import Placement
from framekiln.device import recorded_calls, release_memory, upload
from framekiln.lab.sweep.figures import drift
from framekiln.planning.step import Step
from framekiln.runtime.recovery.child_tasks import not_set_up
from framekiln.runtime.stage_setup import set_up
from framekiln_stages.identities.hdbscan import spanning_tree

WAYS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {"precision": "fp32", "compile": False},
    "auto": {"precision": "auto", "compile": False},
    "bf16": {"precision": "bf16", "compile": False},
    "fp16": {"precision": "fp16", "compile": False},
    "fp16 sums": {"precision": "fp16-sums", "compile": False},
    "compiled": {"precision": "auto", "compile": True},
}
LEAST = {"segment": (0.9999, 0.99), "inpaint": (0.99999, 0.9998)}
"""Least cosine with fp32 on the CPU, in fp32 and in 16 bits: as strict as the stages' own tests. A mask's
logits pass through 48 blocks; of images a cosine of 0.9998 is an error of 2.5 of 255 levels, a PSNR of 40 dB."""

_LEAST = (0.9999, 0.999)  # embeddings
_UPLOADS = 400
_POINTS = 3000  # of a spanning tree


@dataclass
class EqualityCase:
    """One stage on the CPU, and on the GPU in each way."""

    step: Step  # not set up
    case: Case
    device: str
    parts: tuple[str, ...]  # of `WAYS`
    threads: int  # for the CPU's side

    def prepare(self) -> None:
        """Compute what fp32 on the CPU gives."""
        import torch

        torch.set_num_threads(self.threads)
        self._rows = rows_for(self.step, self.case.sizes, self.case.masks)
        cpu = replace(self.step.placement.on_cpu(), channels_last=self.step.placement.channels_last)
        self._expected = self._outputs(cpu)

    def measure(self, way: str) -> Mapping[str, Any]:
        """Return the difference of a way from that."""
        pinned = self.device != "cpu"
        place = replace(self.step.placement, device=self.device, pin_memory=pinned, **WAYS[way])  # type: ignore[arg-type]
        least = LEAST.get(self.case.stage, _LEAST)[way != "fp32"]
        off = asdict(drift(self._outputs(place), self._expected))
        release_memory()
        return {"ok": (off["cosine"] or 0.0) >= least, "least_cosine": least, **off}

    def _outputs(self, place: Placement) -> Any:
        """Return what all model calls of one call of the stage returned, flat."""
        import torch

        step = not_set_up(replace(self.step, placement=place))
        set_up(step)
        with recorded_calls() as calls:
            step.stage(self._rows.select(step.stage.inputs))
        with torch.inference_mode():
            return torch.cat([call().flatten().float().cpu() for call in calls])


def measure(options: GpuOptions, record: Recorder) -> None:
    """Record the differences of all stages, of uploads, and of the tree of `identities`."""
    _uploads(options, record)
    _tree(options, record)
    held = {}
    for stage in STAGES:
        case, titles = _case(stage, options), options.wanted({f"{stage} {way}": way for way in _ways(options)})
        if titles:
            ways = tuple(titles.values())
            held[stage] = EqualityCase(step_of(case, options), case, options.device, ways, options.threads)
    for stage, way, difference in measured(held, options.at_once, alone=False):
        record(stage=stage, way=way, **difference)


def _ways(options: GpuOptions) -> Sequence[str]:
    """Return the ways in which stages run; a compiled model takes longest, and comes last."""
    if options.device == "cpu":
        return ("fp32",)
    return tuple(way for way in WAYS if options.compile or not WAYS[way]["compile"])


def _case(stage: str, options: GpuOptions) -> Case:
    """Return few rows of a stage; of LaMa only the crops' own shapes are compiled."""
    chunks = {"segment": {"prompts": 32}, "inpaint": {"crops": 2}}.get(stage)
    settings = ["inpaint.shapes=many"] if stage == "inpaint" else []
    if stage == "segment" and not options.small:
        settings.append("segment.points_per_side=8")
    return Case(
        stage=stage,
        sizes=[(256, 320)] if options.small else [(512, 576)] * (1 if stage == "segment" else 2),
        masks=2,
        settings=settings,
        placement={"batch": 2, **({"chunks": chunks} if chunks else {})},
    )


def _uploads(options: GpuOptions, record: Recorder) -> None:
    """Record how many uploads arrived with other bytes than they had, while the GPU was kept busy between them."""
    import torch

    places, count = np.random.default_rng(0), _UPLOADS // 20 if options.small else _UPLOADS
    side = 256 if options.small else 2048
    noise, sums, expected = torch.randn(side, side, device=options.device), [], []
    for number in range(count):
        shape = (300 + number % 7, 200, 3)
        images = [places.integers(0, 255, shape, dtype=np.uint8) for _ in range(1 + number % 5)]
        noise @ noise  # the GPU is behind: buffers are filled again, and memory used again, before sums are computed
        there = upload(images, options.device, pin=options.device != "cpu")
        sums.append(there.sum(dtype=torch.int64))
        expected.append(sum(int(image.sum(dtype=np.int64)) for image in images))
        del there
    wrong = sum(total != right for total, right in zip(torch.stack(sums).tolist(), expected, strict=True))
    record(uploads=count, wrong=wrong, ok=wrong == 0)


def _tree(options: GpuOptions, record: Recorder) -> None:
    """Record whether the spanning tree of `identities` has the same edges on the GPU."""
    vectors = np.random.default_rng(2).normal(size=(_POINTS // 10 if options.small else _POINTS, 128))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    here, there = spanning_tree(vectors, 2), spanning_tree(vectors, 2, options.device)
    edges = np.array_equal(here.edges, there.edges)
    off = float(np.abs(here.weights - there.weights).max()) if edges else None
    record(stage="identities", way="tree", equal_edges=edges, largest_difference=off, ok=edges and (off or 0) < 1e-9)
