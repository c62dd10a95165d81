"""The set-up of stages in a process: this node's weights, and a share of its GPU's memory."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from framekiln import device
from framekiln.contract import Placement, Stage
from framekiln.contract.array_cache import ArrayCache
from framekiln.contract.errors import OWN_CODE, SetupError, WeightsError
from framekiln.device.failures import message_of
from framekiln.planning.step import Step
from framekiln.weights.checksums import cache_root
from framekiln.weights.lockfile import WeightsEntry
from framekiln.weights.resolver import check_unchanged, resolve


def set_up(step: Step) -> None:
    """Set up a step's stage in this process.

    Raises SetupError: a stage could not load what it needs. Raises WeightsError: weights are missing on this node.
    """
    step.stage.chunk_sizes = {**step.placement.chunks, **step.stage.chunk_sizes}  # sizes learned in earlier runs stay
    set_up_stage(step.stage, step.name, step.weights, step.placement, step.entries)


def set_up_stage(
    stage: Stage,
    name: str,
    weights: Mapping[str, Path],
    placement: Placement,
    entries: Mapping[str, WeightsEntry] | None = None,
) -> None:
    """Set up the stage of a named step; see `set_up`."""
    if placement.device != "cpu":
        device.configure_gpu()
    if placement.compile:  # torch's own folder for compiled code is temporary, and a container loses it
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))
    paths = {  # the driver's paths if this node has them, else this node's files of the same name and hash
        weight: path if path.exists() else resolve([weight], lock=entries)[weight] for weight, path in weights.items()
    }
    if entries and paths.keys() == set(stage.weights) <= entries.keys():  # random weights change with torch's versions
        hashes = {weight: entries[weight].sha256 for weight in paths}
        stage.arrays = ArrayCache(cache_root() / "arrays", {"device": placement.device, "weights": hashes})
    device.mark_interrupts()
    try:
        stage.setup(paths, placement)
        for weight, path in paths.items():
            if entries and weight in entries:
                check_unchanged(path, entries[weight])
        stage.arrays.keep()
    except WeightsError:
        raise
    except BaseException as error:
        if device.is_end_of_process(error):
            raise
        raise _explain_error(error, name, placement) from error
    device.wait(placement.device)  # other threads use the results, in streams of their own
    device.release_memory()  # used during set-up only; others may share the GPU
    stage.clock = device.clock_of(placement.device)
    stage.item_counts.take()


def _explain_error(error: BaseException, name: str, placement: Placement) -> SetupError:
    problem = f"Step {name!r} could not be set up:"
    if not device.is_out_of_memory(error):
        return SetupError(f"{problem} {type(error).__name__}: {message_of(error)}", code="FK-STAGE-SETUP")
    if placement.device == "cpu":
        return SetupError(
            f"{problem} the machine's memory cannot hold its model. Close other programs, or run fewer workers.",
            code="FK-SETUP-OUT-OF-MEMORY",
        )
    share = f"{placement.vram_gb:.3g} GB of " if placement.vram_gb else ""
    return SetupError(
        f"{problem} {share}the GPU's memory cannot hold its model. Give it more `vram_gb` in the profile, or see which "
        "other processes use the GPU (nvidia-smi).",
        code="FK-SETUP-GPU-MEMORY",
    )


def share_gpu(steps: Sequence[Step]) -> None:
    """Watch this process's GPU, and limit its memory to what the steps may allocate, if all of them state it.

    Raises SetupError: torch cannot use the GPU of this node.
    """
    shares = [step.placement.vram_gb for step in steps if step.placement.device == "cuda"]
    if not shares:
        return
    try:
        device.configure_gpu()
        device.watch_gpu("cuda")
        if all(shares):
            device.limit_memory(sum(shares))
    except OWN_CODE as error:
        raise SetupError(
            f"torch cannot use the GPU of {platform.node()}: {type(error).__name__}: {message_of(error)}. "
            "`framekiln plan` with the same profile there tells why.",
            code="FK-GPU-UNUSABLE",
        ) from error
