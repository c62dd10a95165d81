"""Making stages ready in a process: weights where this node has them, and a share of its GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline import weights as weights_lock
from pipeline.device import clock_of, is_out_of_memory, limit_memory, plain_convolutions, release_memory
from pipeline.errors import SetupError
from pipeline.stage import Placement, Stage
from pipeline.step import Step


def set_up(step: Step) -> None:
    """Make a step's stage ready in this process.

    Raises:
        SetupError: it could not load what it needs.
        WeightsError: its weights are not on this node.
    """
    step.stage.chunk_rows.update(step.chunks)
    ready(step.stage, step.name, step.weights, step.placement)


def ready(stage: Stage, name: str, weights: Mapping[str, Path], placement: Placement) -> None:
    """Have a step's stage load what it needs; see `set_up`."""
    if placement.device != "cpu":
        plain_convolutions()
    paths = {weight: _here(weight, path) for weight, path in weights.items()}
    try:
        stage.setup(paths, placement)
    except Exception as error:
        raise SetupError(f"Step {name!r} could not be set up: {_told(error, placement)}") from error
    release_memory()  # what only the set-up needed: others may share the card
    stage.clock = clock_of(placement.device)
    stage.items.clear()


def _told(error: Exception, placement: Placement) -> str:
    if not is_out_of_memory(error):
        return f"{type(error).__name__}: {error}"
    if placement.device == "cpu":
        return "the machine's memory does not hold its model; close other programs, or run fewer workers"
    share = f"{placement.vram_gb:.3g} GB of " if placement.vram_gb else ""
    fix = "give it more `vram_gb` in the profile, or see who else is on the card (nvidia-smi)"
    return f"{share}the GPU's memory cannot hold its model; {fix}"


def share_gpu(steps: Sequence[Step]) -> None:
    """Keep this process to what its steps may allocate on the GPU, where they all say so."""
    wanted = [step.placement.vram_gb for step in steps if step.placement.device == "cuda"]
    if wanted and all(wanted):
        limit_memory(sum(wanted))


def _here(name: str, path: Path) -> Path:
    """The driver's path where this node has it too, else what this node has by the same name and hash."""
    return path if path.exists() else weights_lock.resolve([name])[name]
