"""A profile's words become numbers for the machines at hand: which device, how many workers, how many rows a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.errors import ConfigError
from pipeline.failure import DECODE
from pipeline.grouping import process_of, shared
from pipeline.machines import Demand, Node, place
from pipeline.manifest import PlacementEntry, ProfileFile, Workers
from pipeline.settings import validated
from pipeline.stage import Placement, Stage
from pipeline.step import DecodeStep, Step
from pipeline.waves import Wave

_LEAST_SHARE = 0.01  # of a card, for a step that --device puts there: without one Ray gives it no card of its own
_STAGE_NAMES = {"batch": "batch_rows"}  # a profile's word for a field of Placement


def placement_entry(
    name: str, stage: Stage, profile: ProfileFile, overrides: Mapping[str, Any], device: str | None
) -> PlacementEntry:
    """What holds for the whole profile, its entry for the step, --device and --set, the later the stronger.

    Raises:
        ConfigError: the stage cannot run on the device.
    """
    merged: dict[str, Any] = {"precision": profile.precision, "pin_memory": profile.pin_memory}
    merged |= profile.defaults.model_dump(exclude_unset=True)
    if name in profile.steps:
        merged |= profile.steps[name].model_dump(exclude_unset=True, exclude={"with_"})
    if device in stage.devices:
        merged["device"] = device
    merged |= {key: value for key, value in overrides.items() if key in PlacementEntry.model_fields}
    result: PlacementEntry = validated(PlacementEntry, merged, f"step {name!r}")
    if result.device and result.device not in stage.devices:
        can = ", ".join(stage.devices)
        raise ConfigError(
            f"Step {name!r} cannot run on {result.device!r}, only on {can}; change `device` in the profile."
        )
    moved = device == "cuda" == result.device and "gpus" not in overrides
    if moved and not (result.gpus or stage.placement.gpus):
        return result.model_copy(update={"gpus": _LEAST_SHARE})
    return result.model_copy(update={"gpus": 0.0}) if result.device == "cpu" else result


def settle(wanted: Sequence[tuple[Step, PlacementEntry]], cores: float) -> list[Step]:
    """Steps with every number known.

    Models whose number of workers is 'auto' share half the cores: the other half is for decoding and steps without a
    model.
    """
    placed = [(_placed(step, entry), entry.workers) for step, entry in wanted]
    sharing = {process_of(step) for step, workers in placed if workers == "auto" and step.keeps_model}
    result = []
    for step, workers in placed:
        parts = 2 * len(sharing) if step.keeps_model and sharing else 1
        most = max(1, int(cores / parts / step.placement.cpus))
        number = resolve_workers(workers, step.placement.workers, most, clamp=not step.keeps_model)
        result.append(replace(step, placement=replace(step.placement, workers=number)))
    return result


def resolve_workers(wanted: Workers | None, own: int, most: int, *, clamp: bool) -> int:
    """A number of workers; those that take turns on the cores are never more than `most`."""
    number = most if wanted == "auto" else wanted or own
    return min(number, most) if clamp else number


def _placed(step: Step, entry: PlacementEntry) -> Step:
    given = entry.model_dump(exclude_none=True, exclude={"workers", "chunks"})
    placement: Placement = replace(
        step.placement, **{_STAGE_NAMES.get(key, key): value for key, value in given.items()}
    )
    return replace(step, placement=placement, chunks=entry.chunks)


def fit(waves: Sequence[Wave], steps: Sequence[Step], nodes: Sequence[Node]) -> None:
    """Refuse what has no place: a wave of the first pass runs all at once, the second pass one step after the other.

    Raises:
        ResourceError: see `place`.
    """
    for wave in waves:
        place(demands(wave.decode, wave.own), nodes)
    for step in (step for step in steps if step.keeps_model_later):
        asks = step.placement
        place([Demand(step=step.name, cpus=asks.cpus, gpus=asks.gpus, copies=asks.workers)], nodes)


def demands(decode: DecodeStep, steps: Sequence[Step]) -> list[Demand]:
    """Every model's processes, and the largest task: tasks take turns, processes stay."""
    processes: dict[str, list[Step]] = {}
    for step in steps:
        if step.keeps_model:
            processes.setdefault(process_of(step), []).append(step)
    models = []
    for members in processes.values():
        asks = shared(members)
        name = "+".join(step.name for step in members)
        models.append(Demand(step=name, cpus=asks.cpus, gpus=asks.gpus, copies=asks.workers))
    tasks = [Demand(step=s.name, cpus=s.placement.cpus) for s in steps if not s.keeps_model]
    return [*models, max([Demand(step=DECODE, cpus=decode.cpus), *tasks], key=lambda task: task.cpus)]
