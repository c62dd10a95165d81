"""Pipeline and profile become checked steps, before anything is started.

Whatever can be known to be wrong is refused here: names, settings, columns that nobody makes or two steps make, weights that are not at
hand. The plan also knows each column's last reader and drops it there, so that pixels never travel further than they must.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from pipeline import weights as weights_lock
from pipeline.columns import ON_REQUEST, SOURCE, is_pixels
from pipeline.errors import ConfigError, did_you_mean
from pipeline.failure import DECODE
from pipeline.machines import Demand, Node, place
from pipeline.manifest import Decode, PipelineFile, PlacementEntry, ProfileFile, read_pipeline
from pipeline.media.config import DecodeConfig
from pipeline.stage import Placement, Stage
from pipeline.step import DecodeStep, Step, fingerprint


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the command line says beyond the two files."""

    stages: tuple[str, ...] = ()  # empty: all
    settings: tuple[str, ...] = ()  # step.key=value
    device: str | None = None
    weights_dir: Path | None = None
    decode: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Checked steps in the order they run."""

    decode: DecodeStep
    first: tuple[Step, ...]
    second: tuple[Step, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps but decoding."""
        return self.first + self.second

    def groups(self) -> list[tuple[Step, ...]]:
        """First-pass steps by the process they share.

        Neighbours without a model that ask for the same share one task, and the first such task also decodes when its numbers are
        the loaders'; then pixels are never copied between them. It is an empty group when it decodes only.
        """
        groups: list[list[Step]] = [[]]
        last: tuple[float, int] | None = (self.decode.cpus, self.decode.workers)
        for step in self.first:
            numbers = None if step.keeps_model else (step.placement.cpus, step.placement.workers)
            if numbers is not None and numbers == last:
                groups[-1].append(step)
            else:
                groups.append([step])
            last = numbers
        return [tuple(group) for group in groups]


def make_plan(pipeline: PipelineFile, profile: ProfileFile, choices: Choices, nodes: Sequence[Node], *, check_weights: bool = True) -> Plan:
    """Check everything and settle every number for the given machines.

    Args:
        pipeline: what is computed.
        profile: where and how fast.
        choices: the command line's word on both.
        nodes: the machines.
        check_weights: false to plan also where weights are missing, to look at the plan.

    Raises:
        ConfigError: a name, setting or column is wrong.
        WeightsError: weights are not at hand.
        ResourceError: a worker does not fit.
    """
    _check_names(pipeline, profile, choices)
    cores = sum(node.cpus for node in nodes)
    overrides = _overrides(pipeline, choices.settings)
    stages = {name: _build(name, pipeline, overrides) for name in pipeline.steps}
    makers = _makers(stages)
    order = _order(_selected(pipeline, choices, stages, makers), stages, makers)
    decode_settings = {**pipeline.decode.model_dump(), **overrides.get(DECODE, {}), **choices.decode}
    decode = _decode_step(_validated(Decode, decode_settings, "decode"), profile, [stages[name] for name in order], cores)
    steps: dict[str, Step] = {}
    for name in order:
        producers = [steps[makers[column]] for column in stages[name].inputs if column in makers]
        steps[name] = _step(name, pipeline.steps[name].use, stages[name], producers, decode, _weights(stages[name], choices, check_weights))
    placed = _settle([(steps[name], _placement(name, stages[name], profile, overrides, choices)) for name in order], cores)
    plan = Plan(decode=decode, first=_with_drops([s for s in placed if s.first_pass], decode), second=tuple(s for s in placed if not s.first_pass))
    place(_demands(plan), nodes)
    return plan


def _check_names(pipeline: PipelineFile, profile: ProfileFile, choices: Choices) -> None:
    if not pipeline.steps:
        raise ConfigError("The pipeline has no steps; add one under `steps:`.")
    for name in choices.stages:
        if name not in pipeline.steps:
            raise ConfigError(f"--stages: the pipeline has no step {name!r}.{did_you_mean(name, pipeline.steps)}")
    shipped = read_pipeline(None)  # a shipped profile serves any pipeline, also one with fewer steps
    for name in profile.steps:
        if name not in {*pipeline.steps, *pipeline.planned, *shipped.steps, *shipped.planned}:
            raise ConfigError(f"The profile places a step {name!r} that the pipeline does not have.{did_you_mean(name, pipeline.steps)}")


def _overrides(pipeline: PipelineFile, settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`step.key=value` words, by step; values are read as YAML."""
    found: dict[str, dict[str, Any]] = {}
    for word in settings:
        path, equals, text = word.partition("=")
        step, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise ConfigError(f"--set {word!r} is not of the form step.key=value, as in --set flow.preset=medium.")
        if step != DECODE and step not in pipeline.steps:
            raise ConfigError(f"--set {word!r}: the pipeline has no step {step!r}.{did_you_mean(step, [*pipeline.steps, DECODE])}")
        found.setdefault(step, {})[key] = yaml.safe_load(text)
    return found


def _build(name: str, pipeline: PipelineFile, overrides: Mapping[str, Mapping[str, Any]]) -> Stage:
    entry = pipeline.steps[name]
    stage_class = _load(name, entry.use)
    known = {item.name for item in fields(stage_class.Config)}
    placing = set(PlacementEntry.model_fields)
    settings = dict(entry.with_)
    for key, value in overrides.get(name, {}).items():
        if key in known or key not in placing:
            settings[key] = value
    for key in settings:
        if key not in known:
            raise ConfigError(f"Step {name!r} has no setting {key!r}.{did_you_mean(key, known | placing)}")
    return stage_class(_validated(stage_class.Config, settings, f"step {name!r}"))


def _load(name: str, use: str) -> type[Stage]:
    module, _, attribute = use.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"Step {name!r} uses {use!r}, but there is no module {error.name!r}; check `use:` in the pipeline file.") from error
    except AttributeError as error:
        names = [key for key, value in vars(importlib.import_module(module)).items() if isinstance(value, type) and issubclass(value, Stage)]
        raise ConfigError(f"Step {name!r} uses {use!r}, but {module} has no {attribute!r}.{did_you_mean(attribute, names)}") from error
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise ConfigError(f"Step {name!r} uses {use!r}, which is not a Stage class.")
    return found


def _validated(kind: Any, settings: Mapping[str, Any], where: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(dict(settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: unknown setting {key!r}.{did_you_mean(key, kind.model_fields)}") from error
        raise ConfigError(f"{where}: setting {key!r} is wrong: {first['msg']} (got {first['input']!r}).") from error
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _makers(stages: Mapping[str, Stage]) -> dict[str, str]:
    """By column, the step that adds it."""
    makers: dict[str, str] = {}
    for name, stage in stages.items():
        for column in stage.outputs.names:
            if column in makers:
                raise ConfigError(f"Steps {makers[column]!r} and {name!r} both add a column {column!r}; drop one of them or rename its column.")
            if column in SOURCE.names or column in ON_REQUEST or is_pixels(column):
                raise ConfigError(f"Step {name!r} adds a column {column!r}, a name that decoding already uses.")
            makers[column] = name
    for name, stage in stages.items():
        for column in stage.inputs:
            _check_input(name, stage, column, makers)
    return makers


def _check_input(name: str, stage: Stage, column: str, makers: Mapping[str, str]) -> None:
    decoded = is_pixels(column) or column in ON_REQUEST
    if not (decoded or column in SOURCE.names or column in makers):
        raise ConfigError(f"Step {name!r} reads a column {column!r} that no step adds.{did_you_mean(column, [*SOURCE.names, *makers])}")
    if decoded and not stage.scope.first_pass:
        raise ConfigError(f"Step {name!r} reads {column!r}, but a second-pass step is given derived columns only.")
    if column in makers and stage.halo:
        raise ConfigError(f"Step {name!r} looks ahead, so it can read decoded columns only, not {column!r} of step {makers[column]!r}.")


def _selected(pipeline: PipelineFile, choices: Choices, stages: Mapping[str, Stage], makers: Mapping[str, str]) -> set[str]:
    """The chosen steps and those whose columns they read."""
    todo = list(choices.stages or pipeline.steps)
    chosen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in chosen:
            chosen.add(name)
            todo += [makers[column] for column in stages[name].inputs if column in makers]
    return chosen


def _order(names: set[str], stages: Mapping[str, Stage], makers: Mapping[str, str]) -> list[str]:
    """Producers before readers; otherwise loaders' work first, then as the pipeline file has it."""
    waiting = sorted((n for n in stages if n in names), key=lambda n: (not stages[n].scope.first_pass, bool(stages[n].weights)))
    order: list[str] = []
    while waiting:
        ready = next((n for n in waiting if all(makers.get(c, n) in (*order, n) for c in stages[n].inputs)), None)
        if ready is None:
            raise ConfigError(f"Steps {', '.join(map(repr, sorted(waiting)))} read each other's columns in a circle.")
        if any(makers.get(c) == ready for c in stages[ready].inputs):
            raise ConfigError(f"Step {ready!r} reads a column that it adds itself.")
        order.append(ready)
        waiting.remove(ready)
    return order


def _decode_step(decode: Decode, profile: ProfileFile, stages: Sequence[Stage], cores: float) -> DecodeStep:
    asked = {c: None for stage in stages for c in stage.inputs if is_pixels(c) or c in ON_REQUEST}
    workers = profile.decode.workers
    most = max(1, int(cores / profile.decode.cpus))
    return DecodeStep(
        config=DecodeConfig(every_nth=decode.every_nth, max_frames=decode.max_frames, max_pixels=decode.max_pixels, fast_mode=decode.fast_mode),
        columns=tuple(sorted(asked)),
        halo=max((stage.halo for stage in stages), default=0),
        cpus=profile.decode.cpus,
        workers=most if workers == "auto" else min(workers, most),
    )


def _weights(stage: Stage, choices: Choices, check: bool) -> Mapping[str, Path]:
    """Verified files; without the check, those that are at hand."""
    if not check:
        lock = weights_lock.default_lock()
        found = {name: weights_lock.locate(lock[name], weights_dir=choices.weights_dir) for name in stage.weights}
        return {name: path for name, path in found.items() if path is not None}
    return weights_lock.resolve(stage.weights, weights_dir=choices.weights_dir)


def _step(name: str, use: str, stage: Stage, producers: Sequence[Step], decode: DecodeStep, weights: Mapping[str, Path]) -> Step:
    facts = {
        "use": use,
        "version": stage.version,
        "settings": {item.name: getattr(stage.config, item.name) for item in fields(stage.config)},
        "weights": [weights_lock.fingerprint(key) for key in stage.weights],
        "reads": sorted({decode.fingerprint, *(step.fingerprint for step in producers)}),
    }
    depends = frozenset().union(*({step.name} | step.depends for step in producers)) if producers else frozenset()
    return Step(name=name, use=use, stage=stage, placement=stage.placement, fingerprint=fingerprint(facts), depends=depends, weights=weights)


def _placement(name: str, stage: Stage, profile: ProfileFile, overrides: Mapping[str, Mapping[str, Any]], choices: Choices) -> PlacementEntry:
    """The stage's own placement, then the profile's defaults, its entry, --device and --set, the later the stronger."""
    own = {key: value for key, value in overrides.get(name, {}).items() if key in PlacementEntry.model_fields}
    entry = profile.steps.get(name, PlacementEntry())
    merged = {**profile.defaults.model_dump(exclude_unset=True), **entry.model_dump(exclude_unset=True)}
    if choices.device == "cpu" or merged.get("device") == "cpu":
        merged |= {"device": "cpu", "gpus": 0.0}
    elif choices.device and choices.device in stage.devices:
        merged["device"] = choices.device
    result: PlacementEntry = _validated(PlacementEntry, {**merged, **own}, f"step {name!r}")
    if result.device and result.device not in stage.devices:
        raise ConfigError(f"Step {name!r} cannot run on {result.device!r}, only on {', '.join(stage.devices)}; change `device` in the profile.")
    return result


def _settle(wanted: Sequence[tuple[Step, PlacementEntry]], cores: float) -> list[Step]:
    """Numbers for 'auto', and none above the cores: half the cores are shared by the models whose number is left open."""
    open_models = sum(entry.workers == "auto" and step.keeps_model for step, entry in wanted)
    settled = []
    for step, entry in wanted:
        named = {"device": entry.device, "cpus": entry.cpus, "gpus": entry.gpus, "batch_rows": entry.batch, "vram_gb": entry.vram_gb}
        placement = replace(step.placement, **{key: value for key, value in named.items() if value is not None})
        step = replace(step, placement=placement, chunks=entry.chunks)
        most = max(1, int(cores / placement.cpus))
        if entry.workers == "auto":
            workers = max(1, int(cores / 2 / open_models / placement.cpus)) if step.keeps_model else most
        else:
            workers = entry.workers or placement.workers
            workers = workers if step.keeps_model else min(workers, most)
        settled.append(replace(step, placement=_with_workers(placement, workers)))
    return settled


def _with_workers(placement: Placement, workers: int) -> Placement:
    return replace(placement, workers=workers)


def _with_drops(steps: Sequence[Step], decode: DecodeStep) -> tuple[Step, ...]:
    """Each column leaves the packet at its last reader, and an added one that nobody reads never enters it."""
    carried = {*decode.columns, *(name for step in steps for name in step.stage.outputs.names)}
    last = {column: i for i, step in enumerate(steps) for column in (*step.stage.outputs.names, *step.stage.inputs) if column in carried}
    return tuple(replace(step, drops=tuple(sorted(c for c, at in last.items() if at == i))) for i, step in enumerate(steps))


def _demands(plan: Plan) -> list[Demand]:
    """Every model's processes, and one task: tasks can take turns, processes stay."""
    models = [
        Demand(step=s.name, cpus=s.placement.cpus, gpus=s.placement.gpus, copies=s.placement.workers) for s in plan.first if s.keeps_model
    ]
    tasks = [Demand(step=s.name, cpus=s.placement.cpus) for s in plan.steps if not s.keeps_model]
    return [*models, max([Demand(step=DECODE, cpus=plan.decode.cpus), *tasks], key=lambda d: d.cpus)]
