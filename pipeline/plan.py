"""Pipeline and profile become checked steps, before anything is started.

Whatever can be known to be wrong is refused here: names, settings, columns that nobody makes or two steps make, weights
that are not at hand, workers that find no place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pipeline import weights as weights_lock
from pipeline.errors import ConfigError, did_you_mean
from pipeline.failure import DECODE
from pipeline.lineage import find_makers, in_order, is_decoded, with_drops, with_producers
from pipeline.machines import Node, place
from pipeline.manifest import Decode, PipelineFile, ProfileFile, read_pipeline
from pipeline.media.config import DecodeConfig
from pipeline.placing import demands, placement_entry, resolve_workers, settle
from pipeline.settings import Overrides, build, read_overrides, validated
from pipeline.stage import Stage
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

    @property
    def first_folders(self) -> tuple[str, ...]:
        """Where the parts of the first pass lie, the decoder's first."""
        return (self.decode.folder, *(step.folder for step in self.first))

    def groups(self) -> list[tuple[Step, ...]]:
        """First-pass steps by the process they share; the first group decodes, and may do nothing else.

        Neighbours without a model that ask for the same numbers share a task, with the loaders too when these are
        theirs: pixels are then never copied between them.
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


def make_plan(
    pipeline: PipelineFile,
    profile: ProfileFile,
    choices: Choices,
    nodes: Sequence[Node],
    *,
    check_weights: bool = True,
    check_fit: bool = True,
) -> Plan:
    """Check everything and settle every number for the given machines.

    Args:
        pipeline: what is computed.
        profile: where and how fast.
        choices: the command line's word on both.
        nodes: the machines.
        check_weights: false to plan also where weights are missing, to look at the plan.
        check_fit: false to plan also what has no place on the machines.

    Raises:
        ConfigError: a name, setting or column is wrong.
        WeightsError: weights are not at hand.
        ResourceError: a worker does not fit.
    """
    _check_names(pipeline, profile, choices)
    cores = sum(node.cpus for node in nodes)
    overrides = read_overrides(choices.settings, pipeline)
    stages = {name: build(name, entry, overrides.get(name, {})) for name, entry in pipeline.steps.items()}
    makers = find_makers(stages)
    order = in_order(with_producers(choices.stages or pipeline.steps, stages, makers), stages, makers)
    rule = _decode_rule(pipeline, overrides, choices)
    decode = _decode_step(rule, profile, [stages[name] for name in order], cores)
    steps: dict[str, Step] = {}
    for name in order:
        producers = [steps[makers[column]] for column in stages[name].inputs if column in makers]
        weights = _weights(stages[name], choices, check=check_weights)
        steps[name] = _step(name, pipeline.steps[name].use, stages[name], producers, decode, weights)
    entries = [placement_entry(name, stages[name], profile, overrides.get(name, {}), choices.device) for name in order]
    placed = settle(list(zip(steps.values(), entries, strict=True)), cores)
    if check_fit:
        place(demands(decode, placed), nodes)
    first = with_drops([step for step in placed if step.first_pass], decode.columns)
    return Plan(decode=decode, first=first, second=tuple(step for step in placed if not step.first_pass))


def _check_names(pipeline: PipelineFile, profile: ProfileFile, choices: Choices) -> None:
    if not pipeline.steps:
        raise ConfigError("The pipeline has no steps; add one under `steps:`.")
    for name in choices.stages:
        if name not in pipeline.steps:
            raise ConfigError(f"--stages: the pipeline has no step {name!r}.{did_you_mean(name, pipeline.steps)}")
    shipped = read_pipeline(None)  # a shipped profile serves any pipeline, also one with fewer steps
    for name in profile.steps:
        if name not in {*pipeline.steps, *pipeline.planned, *shipped.steps, *shipped.planned}:
            known = did_you_mean(name, pipeline.steps)
            raise ConfigError(f"The profile places a step {name!r} that the pipeline does not have.{known}")


def _decode_rule(pipeline: PipelineFile, overrides: Overrides, choices: Choices) -> Decode:
    settings = {**pipeline.decode.model_dump(), **overrides.get(DECODE, {}), **choices.decode}
    rule: Decode = validated(Decode, settings, DECODE)
    return rule


def _decode_step(rule: Decode, profile: ProfileFile, stages: Sequence[Stage], cores: float) -> DecodeStep:
    most = max(1, int(cores / profile.decode.cpus))
    return DecodeStep(
        config=DecodeConfig(**rule.model_dump()),
        columns=tuple(sorted({column for stage in stages for column in stage.inputs if is_decoded(column)})),
        halo=max((stage.halo for stage in stages), default=0),
        cpus=profile.decode.cpus,
        workers=resolve_workers(profile.decode.workers, 1, most, clamp=True),
    )


def _weights(stage: Stage, choices: Choices, *, check: bool) -> Mapping[str, Path]:
    """Verified files; without the check, those that are at hand."""
    if check:
        return weights_lock.resolve(stage.weights, weights_dir=choices.weights_dir)
    lock = weights_lock.default_lock()
    found = {name: weights_lock.locate(lock[name], weights_dir=choices.weights_dir) for name in stage.weights}
    return {name: path for name, path in found.items() if path is not None}


def _step(
    name: str, use: str, stage: Stage, producers: Sequence[Step], decode: DecodeStep, weights: Mapping[str, Path]
) -> Step:
    facts = {
        "use": use,
        "version": stage.version,
        "settings": {item.name: getattr(stage.config, item.name) for item in fields(stage.config)},
        "weights": [weights_lock.fingerprint(key) for key in stage.weights],
        "reads": sorted({decode.fingerprint, *(step.fingerprint for step in producers)}),
    }
    depends = frozenset(dep for step in producers for dep in (step.name, *step.depends))
    return Step(
        name=name,
        use=use,
        stage=stage,
        placement=stage.placement,
        fingerprint=fingerprint(facts),
        depends=depends,
        weights=weights,
    )
