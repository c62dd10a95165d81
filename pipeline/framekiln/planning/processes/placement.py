"""Placements of steps, merged from stage, profile and command line, and the resources of their processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from framekiln.contract import Placement, Scope, Stage
from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.row_errors import DECODE
from framekiln.planning.manifest import PLACEMENT_KEYS, PlacementSettings, ProfileFile
from framekiln.planning.processes.resources import SLACK, Demand, Node, place
from framekiln.planning.processes.waves import Wave, combined_placement, process_name, processes
from framekiln.planning.settings import Overrides, validated
from framekiln.planning.step import DecodeStep, Step

AUTO = 0  # workers as many as the cores or the GPUs allow, until `assign_workers`
_LEAST_SHARE = 0.01  # share of a GPU, for a step put there by --device: without a share Ray assigns it no GPU


def merge_placement(
    name: str, stage: Stage, profile: ProfileFile, overrides: Mapping[str, Any], device: str | None
) -> Placement:
    """Return the placement of a step.

    Sources are the stage, the whole profile, its entry for the step, --device and --set; later ones win.

    Raises ConfigError: a value is invalid, or the stage cannot run on the device.
    """
    settings: dict[str, Any] = {"precision": profile.precision, "pin_memory": profile.pin_memory}
    settings |= profile.defaults | profile.steps.get(name, {})
    if device == "cpu" and settings.get("device", stage.placement.device) != device:  # otherwise set for the CPU
        settings |= {"compile": False, "in_flight": 1}
        settings |= {"workers": 1} if settings.get("workers") == "auto" else {}  # one for each GPU: none is used
    settings |= {"device": device} if device in stage.devices else {}
    settings |= {key: value for key, value in overrides.items() if key in PLACEMENT_KEYS}
    settings.pop("with", None)
    checked: dict[str, Any] = validated(PlacementSettings, settings, f"step {name!r}")
    chosen = {key: value for key, value in checked.items() if value is not None}
    if chosen.get("workers") == "auto":
        chosen["workers"] = AUTO
    placement = replace(stage.placement, **chosen)
    if placement.device not in stage.devices:
        devices = ", ".join(stage.devices)
        raise ConfigError(
            f"Step {name!r} cannot run on {placement.device!r}, only on {devices}; change `device` in the profile.",
            code="FK-DEVICE-UNSUPPORTED",
        )
    if device == "cuda" == placement.device and "gpus" not in overrides and not placement.gpus:
        return replace(placement, gpus=_LEAST_SHARE)
    return replace(placement, gpus=0.0) if chosen.get("device") == "cpu" else placement


def check_numbers(profile: ProfileFile, overrides: Overrides, stages: Mapping[str, Stage], device: str | None) -> None:
    """Check that each number of a profile or --set for a step has an effect: none is dropped silently.

    `defaults` of a profile are not checked: they apply to the steps that use them. `device` is the command line's, for
    all steps that support it.

    Raises ConfigError: a number has no effect; the message says why.
    """
    for name, stage in stages.items():
        common, entry, typed = profile.defaults, profile.steps.get(name, {}), overrides.get(name, {})
        merged = {**common, **entry, **typed}
        kind = merged.get("device") or stage.placement.device
        kind = "cuda" if device == "cuda" and device in stage.devices else kind
        for source, values in ((f"The profile's {name}", entry), (f"--set {name}", typed)):
            for key, value in values.items():
                if value is not None and (reason := _explain_idle(key, value, stage, kind, merged.get("group"))):
                    raise ConfigError(
                        f"{source}.{key}={value} has no effect: {reason}; remove it.", code="FK-NO-EFFECT"
                    )
                if key == "chunks" and isinstance(value, Mapping):  # otherwise rejected as a placement
                    _check_chunks(f"{source}.chunks", stage, value)
    entries = [profile.defaults, *profile.steps.values(), *overrides.values()]
    on_gpu = any(entry.get("device") == "cuda" for entry in entries) or device == "cuda"
    if profile.gpu_vram_gb and not on_gpu and not any(s.placement.device == "cuda" for s in stages.values()):
        problem = f"The profile's vram_gb={profile.gpu_vram_gb:g} has no effect: no step runs on a GPU; remove it."
        raise ConfigError(problem, code="FK-NO-EFFECT")


def _check_chunks(where: str, stage: Stage, chunks: Mapping[str, int]) -> None:
    if stage.chunk_kinds is None:
        return
    for kind in chunks:
        if not stage.chunk_kinds:
            raise ConfigError(f"{where}.{kind} has no effect: the step has no chunks; remove it.", code="FK-NO-EFFECT")
        check_known(kind, stage.chunk_kinds, f"{where}: the step has no chunks of {kind!r}.", code="FK-NO-EFFECT")


def _explain_idle(key: str, value: Any, stage: Stage, device: str, group: str | None) -> str:
    """Return why a value of a placement has no effect on a device; empty if it has."""
    scope = stage.scope
    match key:
        case "batch" if scope is not Scope.ROW:
            return f"each call of the step gets one {scope.value}"
        case "workers" if scope is Scope.DATASET and value not in (1, "auto"):
            return "one call of the step gets all rows"
        case "gpus" | "vram_gb" | "linger_ms" if value and device == "cpu":
            return "the step runs on the CPU"
        case "timeout_s" | "in_flight" | "linger_ms" if not scope.first_pass:
            return "it is for steps of the first pass"
        case "in_flight" if device == "cpu" and not (stage.weights or group):
            return "only processes with a model work on several packets at a time"
    return ""


def assign_workers(steps: Sequence[Step], cores: float, gpus: float) -> list[Step]:
    """Return steps with their numbers of workers.

    Models with `workers: auto` share half the cores. The other half is for decoding and for steps without a model. On
    GPUs `auto` is a process for each: a profile for one GPU would leave the others of a cluster idle.
    """
    asking = [step for step in steps if step.placement.workers == AUTO and step.keeps_model]
    sharing = {process_name(step) for step in asking if step.placement.device == "cpu"}
    result = []
    for step in steps:
        parts = 2 * len(sharing) if step.keeps_model and sharing else 1
        most = max(1, int(cores / parts / step.placement.cpus))
        workers = step.placement.workers or (most if step.placement.device == "cpu" else max(1, int(gpus)))
        number = workers if step.keeps_model else min(workers, most)  # steps without a model take turns on the cores
        result.append(step.placed(workers=number))
    return result


def limit_to_cores(wave: Wave, cores: float) -> Wave:
    """Return a wave with at most as many concurrent tasks as fit the cores left by processes with models.

    Tasks are decoding and steps without a model. Across several machines, the remaining cores may be too scattered for
    a task, so the number is an upper limit.
    """
    *models, _ = process_demands(wave.decode, wave.own)
    free = cores - sum(demand.cpus * demand.copies for demand in models)

    def most(workers: int, cpus: float) -> int:
        return max(1, min(workers, int((free + SLACK) / cpus)))

    steps = tuple(
        step if step.keeps_model else step.placed(workers=most(step.placement.workers, step.placement.cpus))
        for step in wave.steps
    )
    decode = replace(wave.decode, workers=most(wave.decode.workers, wave.decode.cpus))
    return replace(wave, decode=decode, steps=steps)


def check_capacity(waves: Sequence[Wave], second: Sequence[Step], nodes: Sequence[Node]) -> None:
    """Check that each wave of the first pass fits as a whole, and each step of the second pass alone.

    Raises ResourceError: see `place`.
    """
    for wave in waves:
        place(process_demands(wave.decode, wave.own), nodes)
    for step in (step for step in second if step.keeps_model_later):
        place(later_demand(step), nodes)


def later_demand(step: Step) -> list[Demand]:
    """Return the demand of a second-pass step's processes; none for tasks, which take turns."""
    needs = step.placement
    if not step.keeps_model_later:
        return []
    return [Demand(step=step.name, cpus=needs.cpus, gpus=needs.gpus, copies=needs.workers)]


@dataclass(frozen=True, kw_only=True)
class Room:
    """The processes of a step in a plan."""

    processes: int
    is_full: bool  # no core is left for another one


def rooms(waves: Sequence[Wave], second: Sequence[Step], cores: float) -> dict[str, Room]:
    """Return the room of each step, decoding included; the last wave's for a step in several."""
    found: dict[str, Room] = {}
    for wave in waves:
        *models, task = process_demands(wave.decode, wave.own)
        free = cores - sum(demand.cpus * demand.copies for demand in models)
        tasks = [(step.name, step.placement) for step in wave.own if not step.keeps_model]
        counts = [(DECODE, wave.decode.workers, wave.decode.cpus), *((n, p.workers, p.cpus) for n, p in tasks)]
        for name, workers, cpus in counts:
            found[name] = Room(processes=workers, is_full=(workers + 1) * cpus > free + SLACK)
        for name, p in ((step.name, step.placement) for step in wave.own if step.keeps_model):
            found[name] = Room(processes=p.workers, is_full=p.cpus + task.cpus > free + SLACK)
    for name, p in ((step.name, step.placement) for step in second):
        found[name] = Room(processes=p.workers, is_full=(p.workers + 1) * p.cpus > cores + SLACK)
    return found


def asked_processes(wave: Wave) -> int:
    """Return the number of processes that a profile requests if each decodes and has all steps."""
    places = [combined_placement(group) for group in wave.groups() if any(step.keeps_model for step in group)]
    return wave.decode.workers + sum(place.workers * place.in_flight for place in places)


def process_demands(decode: DecodeStep, steps: Sequence[Step]) -> list[Demand]:
    """Return the demands of each model's processes, which stay, and of the largest task, since tasks take turns."""
    models = []
    for members in processes(step for step in steps if step.keeps_model).values():
        needs, name = combined_placement(members), "+".join(step.name for step in members)
        models.append(Demand(step=name, cpus=needs.cpus, gpus=needs.gpus, copies=needs.workers))
    tasks = [Demand(step=s.name, cpus=s.placement.cpus) for s in steps if not s.keeps_model]
    return [*models, max([Demand(step=DECODE, cpus=decode.cpus), *tasks], key=lambda task: task.cpus)]
