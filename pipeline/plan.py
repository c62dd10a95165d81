"""Pipeline and profile become checked steps, before anything is started.

Whatever can be known to be wrong is refused here: names, settings, columns that nobody makes or two steps make, weights
that are not at hand, workers that find no place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pipeline import weights as weights_lock
from pipeline.budget import Budget
from pipeline.calibration.figures import Calibration
from pipeline.calibration.finding import find_calibration
from pipeline.errors import ConfigError, WeightsError, did_you_mean
from pipeline.failure import DECODE
from pipeline.lineage import Makers, Stages, find_makers, in_order, is_decoded, needs, with_producers
from pipeline.machines import Node
from pipeline.manifest import Decode, PipelineFile, PlacementEntry, ProfileFile, read_pipeline
from pipeline.media.config import DecodeConfig
from pipeline.placing import clamped, fit, placement_entry, resolve_workers, settle
from pipeline.scheduling import CONTEXT_GB, Wishes, schedule
from pipeline.settings import Overrides, build_all, read_overrides, validated
from pipeline.stage import Scope, Stage
from pipeline.step import DecodeStep, Step, contents, fingerprint
from pipeline.supply import Policy, Supply, refuse_missing, refuse_unaccepted, take_stock
from pipeline.waves import Wave, in_waves


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the command line says beyond the two files."""

    stages: tuple[str, ...] = ()  # empty: all
    settings: tuple[str, ...] = ()  # step.key=value
    device: str | None = None
    weights_dir: Path | None = None
    missing_weights: Policy = "fail"
    accept_license: bool = False
    max_errors: str | None = None  # of every step and of decoding
    vram_cap: float | None = None  # GB, as if cards had no more
    calibration: Path | None = None  # None: this machine's own, where there is one
    decode: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Checked steps in the order they run."""

    decode: DecodeStep
    first: tuple[Step, ...]  # of the first pass, in an order that no profile changes
    waves: tuple[Wave, ...]
    second: tuple[Step, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)  # steps left out, and why
    absent: Mapping[str, str] = field(
        default_factory=dict
    )  # steps whose weights are missing, or what they read, and why
    fetch: str = ""  # the command that gets the missing weights
    budgets: Mapping[str, Budget] = field(default_factory=dict)  # of failed rows, by step
    reasons: tuple[str, ...] = ()  # why steps are laid out on the card as they are

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps but decoding."""
        return self.first + self.second

    @property
    def dummies(self) -> tuple[str, ...]:
        """Steps that run on random weights."""
        return tuple(step.name for step in self.steps if step.name in step.dummies)

    @property
    def first_folders(self) -> tuple[str, ...]:
        """Where the parts of the first pass lie, the decoder's first."""
        return (self.decode.folder, *(step.folder for step in self.first))

    def groups(self) -> list[tuple[Step, ...]]:
        """First-pass steps by the process they share, wave by wave; each wave's first one decodes."""
        return [group for wave in self.waves for group in wave.groups()]


def make_plan(
    pipeline: PipelineFile,
    profile: ProfileFile,
    choices: Choices,
    nodes: Sequence[Node],
    *,
    check_weights: bool = True,
    check_fit: bool = True,
    calibrated: bool = True,
) -> Plan:
    """Check everything and settle every number for the given machines.

    Args:
        pipeline: what is computed.
        profile: where and how fast.
        choices: the command line's word on both.
        nodes: the machines.
        check_weights: false to plan also where weights are missing, to look at the plan.
        check_fit: false to plan also what has no place on the machines.
        calibrated: false to leave placements as the profile says them, also where a calibration knows better.

    Raises:
        ConfigError: a name, setting or column is wrong.
        WeightsError: weights are not at hand.
        ResourceError: a worker does not fit.
    """
    _check_names(pipeline, profile, choices)
    cores = sum(node.cpus for node in nodes)
    overrides = read_overrides(choices.settings, pipeline)
    stages = build_all(pipeline, profile, overrides)
    makers = find_makers(stages)
    order, supply = _supplied(stages, makers, choices, check=check_weights)
    rule = _decode_rule(pipeline, overrides, choices)
    decode = _decode_step(rule, profile, [stages[name] for name in order], cores)
    steps: dict[str, Step] = {}
    for name in order:
        producers = [steps[makers[made]] for made in needs(stages[name]) if made in makers]
        weights = supply.of(stages[name].weights)
        use, random = pipeline.steps[name].use, choices.missing_weights == "dummy" and stages[name].dummy_weights
        steps[name] = _step(name, use, stages[name], producers, decode, weights, random=random)
    entries = [placement_entry(name, stages[name], profile, overrides.get(name, {}), choices.device) for name in order]
    placed = settle(list(zip(steps.values(), entries, strict=True)), cores)
    known = find_calibration(choices.calibration) if calibrated else None
    wishes = _wishes(profile, choices, overrides, known)
    chosen = schedule([step for step in placed if step.first_pass], decode, nodes, wishes)
    waves = tuple(clamped(wave, cores) for wave in in_waves(decode, chosen.steps, chosen.numbers))
    second = tuple(_later(step, choices.vram_cap) for step in placed if not step.first_pass)
    if check_fit:
        fit(waves, second, nodes)
    return Plan(
        decode=replace(decode, workers=max(wave.decode.workers for wave in waves)),
        first=_first(waves, order),
        waves=waves,
        second=second,
        reasons=chosen.reasons,
        skipped=supply.left_out if choices.missing_weights != "fail" else {},
        absent=supply.left_out,
        fetch=supply.command,
        budgets=_budgets(pipeline, rule, order, choices),
    )


def idle_cap(plan: Plan, choices: Choices) -> str:
    """That --vram-cap changes nothing in a plan without a GPU, in a sentence; empty where it does, or was not given."""
    on_gpu = any(step.placement.device == "cuda" for step in plan.steps)
    return "" if on_gpu or choices.vram_cap is None else "--vram-cap does nothing: no step runs on a GPU."


def _wishes(profile: ProfileFile, choices: Choices, overrides: Overrides, known: Calibration | None) -> Wishes:
    return Wishes(
        vram_gb=profile.vram_gb,
        cap_gb=choices.vram_cap,
        waves=None if profile.waves == "auto" else profile.waves,
        pinned={name: frozenset(said) & PlacementEntry.model_fields.keys() for name, said in overrides.items()},
        calibration=known,
    )


def _later(step: Step, cap_gb: float | None) -> Step:
    """A second-pass step, which has the card to itself, as far as it may have it; a call with all rows is one."""
    if step.stage.scope is Scope.DATASET:
        step = replace(step, placement=replace(step.placement, workers=1))
    asks = step.placement
    if cap_gb is None or asks.device == "cpu":
        return step
    most = max(0.0, cap_gb - CONTEXT_GB)
    return replace(step, placement=replace(asks, vram_gb=min(asks.vram_gb or most, most)))


def _first(waves: Sequence[Wave], order: Sequence[str]) -> tuple[Step, ...]:
    made = {step.name: step for wave in waves for step in wave.own}
    return tuple(made[name] for name in order if name in made)


def _budgets(pipeline: PipelineFile, rule: Decode, order: Sequence[str], choices: Choices) -> dict[str, Budget]:
    """How many rows each step may fail on: what the command line says, else the step's entry, else the pipeline."""
    said = {name: pipeline.steps[name].max_errors for name in order} | {DECODE: rule.max_errors}
    general = dict.fromkeys(order, pipeline.max_errors)
    words = {name: word if word is not None else general.get(name) for name, word in said.items()}
    if choices.max_errors is not None:
        words = dict.fromkeys(words, choices.max_errors)
    return {name: Budget.read(str(word)) for name, word in words.items() if word is not None}


def _check_names(pipeline: PipelineFile, profile: ProfileFile, choices: Choices) -> None:
    if not pipeline.steps:
        raise ConfigError("The pipeline has no steps; add one under `steps:`.")
    for name in choices.stages:
        if name not in pipeline.steps:
            raise ConfigError(f"--stages: the pipeline has no step {name!r}.{did_you_mean(name, pipeline.steps)}")
    shipped = read_pipeline(None)  # a shipped profile serves any pipeline, also one with fewer steps
    everything = {*pipeline.steps, *pipeline.planned, *shipped.steps, *shipped.planned}
    waved = () if profile.waves == "auto" else [name for wave in profile.waves for name in wave]
    named = (("places", profile.steps), ("has targets for", profile.targets.steps), ("has in its waves", waved))
    for does, names in named:
        for name in names:
            if name not in everything:
                known = did_you_mean(name, pipeline.steps)
                raise ConfigError(f"The profile {does} a step {name!r} that the pipeline does not have.{known}")


def _decode_rule(pipeline: PipelineFile, overrides: Overrides, choices: Choices) -> Decode:
    settings = {**pipeline.decode.model_dump(), **overrides.get(DECODE, {}), **choices.decode}
    rule: Decode = validated(Decode, settings, DECODE)
    return rule


def _decode_step(rule: Decode, profile: ProfileFile, stages: Sequence[Stage], cores: float) -> DecodeStep:
    most = max(1, int(cores / profile.decode.cpus))
    return DecodeStep(
        config=DecodeConfig(**rule.model_dump(exclude={"max_errors"})),
        columns=tuple(sorted({column for stage in stages for column in stage.inputs if is_decoded(column)})),
        halo=max((stage.halo for stage in stages), default=0),
        cpus=profile.decode.cpus,
        workers=resolve_workers(profile.decode.workers, 1, most, clamp=True),
        deadline_s=profile.decode.deadline_s,
    )


def _supplied(stages: Stages, makers: Makers, choices: Choices, *, check: bool) -> tuple[list[str], Supply]:
    """The steps that run, in order, and their weights; what only skipped steps would read is not made."""
    wanted = choices.stages or tuple(stages)
    order = in_order(with_producers(wanted, stages, makers), stages, makers)
    supply = take_stock(order, stages, makers, choices.weights_dir, random=choices.missing_weights == "dummy")
    if check:
        refuse_missing(supply, order, stages, choices.missing_weights)
    if choices.missing_weights != "fail":
        rest = [name for name in wanted if name not in supply.left_out]
        order = in_order(with_producers(rest, stages, makers), stages, makers)
        if check and not order:
            raise WeightsError(_nothing_left(supply))
    if check:
        used = [name for step in order for name in stages[step].weights]
        refuse_unaccepted(supply.of(used), accepted=choices.accept_license)
    return order, supply


def _nothing_left(supply: Supply) -> str:
    reasons = "; ".join(f"{step}: {reason}" for step, reason in supply.left_out.items())
    get = f"; get them by `{supply.command}`" if supply.command else ""
    return f"Without the steps whose weights are missing nothing is left to run ({reasons}){get}."


def _step(
    name: str,
    use: str,
    stage: Stage,
    producers: Sequence[Step],
    decode: DecodeStep,
    weights: Mapping[str, Path],
    *,
    random: bool,
) -> Step:
    """A step; with `random`, those of its weights that are not at hand are random ones, and so are its results."""
    lacks = {key for key in stage.weights if key not in weights} if random else set[str]()
    facts = {
        "use": use,
        "version": stage.version,
        "settings": {item.name: getattr(stage.config, item.name) for item in fields(stage.config)},
        "weights": [f"random {key}" if key in lacks else weights_lock.fingerprint(key) for key in stage.weights],
        "files": [contents(path, urls=stage.reads_urls) for path in stage.files],
    }
    reads = {DECODE: decode.fingerprint, **{step.name: step.fingerprint for step in producers}}
    depends = frozenset(dep for step in producers for dep in (step.name, *step.depends))
    return Step(
        name=name,
        use=use,
        stage=stage,
        placement=stage.placement,
        fingerprint=fingerprint({**facts, "reads": sorted(set(reads.values()))}),
        facts={**facts, "reads": reads},
        depends=depends,
        weights=weights,
        dummies=tuple(sorted({*([name] if lacks else []), *(dummy for step in producers for dummy in step.dummies)})),
    )
