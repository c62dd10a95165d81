"""The plan of a run: a pipeline file and a profile as checked steps, before anything is started.

Every mistake that can be known is rejected here: names, settings, columns with no producer or two, missing weights, and
workers that do not fit the machines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from framekiln.contract.code_version import version_of
from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Scope
from framekiln.media.config import DecodeConfig
from framekiln.planning import lineage
from framekiln.planning.condition import Condition, RowSets, find_reads, read_condition
from framekiln.planning.error_budget import Budget
from framekiln.planning.gpu.calibration_file import Calibration, find_calibration
from framekiln.planning.gpu.scheduler import CONTEXT_GB, GpuSettings, schedule
from framekiln.planning.limits import run_targets
from framekiln.planning.manifest import PLACEMENT_KEYS, DecodeRule, PipelineFile, ProfileFile, read_pipeline
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.core_limits import describe_limits, fit_later, fit_wave
from framekiln.planning.processes.placement import assign_workers, check_numbers, limit_to_cores, merge_placement
from framekiln.planning.processes.resources import Node
from framekiln.planning.processes.waves import Wave, split_into_waves
from framekiln.planning.settings import read_overrides, validated
from framekiln.planning.stage_building import build_all, find_fix
from framekiln.planning.step import DecodeStep, Step, contents, identify
from framekiln.weights.resolver import merged_lock

NO_SETS = RowSets()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Checked steps in the order they run."""

    decode: DecodeStep
    first: tuple[Step, ...]  # of the first pass, in an order that no profile changes
    waves: tuple[Wave, ...]
    second: tuple[Step, ...]
    producers: Mapping[str, str] = field(default_factory=dict)  # steps by their column, or by `table/`
    skipped: Mapping[str, str] = field(default_factory=dict)  # steps left out, and why
    absent: Mapping[str, str] = field(default_factory=dict)  # steps without weights or without a column, and why
    fetch: str = ""  # the command that fetches the missing weights
    fetch_mb: float = 0.0  # their size
    budgets: Mapping[str, Budget] = field(default_factory=dict)  # of failed rows, by step
    reasons: tuple[str, ...] = ()  # reasons for the layout of steps on the GPU
    limits: str = ""  # numbers lowered to fit the machines' cores
    stand_ins: tuple[str, ...] = ()  # sentences on weights that replace others

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps except decoding."""
        return self.first + self.second

    @property
    def dummies(self) -> tuple[str, ...]:
        """Steps that run with random weights."""
        return tuple(step.name for step in self.steps if step.name in step.dummies)

    @property
    def void(self) -> tuple[str, ...]:
        """A sentence for each step without the first of its weights: invented values, and void figures."""
        random = [step for step in self.steps if step.name in step.dummies and step.stage.dummy_note]
        without = [step for step in random if step.stage.weights[0] not in step.weights]
        return tuple(f"{step.name}: {step.stage.dummy_note}." for step in without)

    @property
    def first_folders(self) -> tuple[str, ...]:
        """Folders of the first pass's parts, the decoder's first."""
        return (self.decode.folder, *(step.folder for step in self.first))

    @property
    def open(self) -> tuple[Step, ...]:
        """Steps with a condition on tables not yet written."""
        return tuple(step for step in self.steps if step.condition.tables and step.condition.settled is None)

    def groups(self) -> list[tuple[Step, ...]]:
        """Return first-pass steps by process, wave by wave; each wave's first process decodes."""
        return [group for wave in self.waves for group in wave.groups()]


def make_plan(
    pipeline: PipelineFile,
    profile: ProfileFile,
    options: PlanOptions,
    nodes: Sequence[Node],
    *,
    check_weights: bool = True,
    calibrated: bool = True,
    refuse_idle: bool = True,
    sets: RowSets = NO_SETS,
) -> Plan:
    """Check everything and set every number for these machines; `check_capacity` tells whether they suffice.

    Args:
        pipeline: what is computed.
        profile: where and how fast.
        options: the command line's settings, which override both.
        nodes: the machines.
        check_weights: raise if weights are missing; if false, the plan shows them.
        calibrated: place steps by a calibration of the GPU if there is one; otherwise as the profile says.
        refuse_idle: raise if a number has no effect; false for planning a run again without its options.
        sets: rows known to meet conditions.

    Raises:
        ConfigError: a name, setting or column is wrong.
        WeightsError: weights are missing.
    """
    planner = _Planner(pipeline, profile, options, nodes, sets)
    if refuse_idle:
        check_numbers(profile, planner.overrides, planner.stages, options.device)
    lock = merged_lock(pipeline.models)
    order, status = lineage.available_steps(planner.stages, planner.producers, options, lock, check=check_weights)
    return planner.plan(order, status, calibrated=calibrated)


class _Planner:
    """The checked choices of both files and the command line, and the resulting steps."""

    def __init__(
        self, pipeline: PipelineFile, profile: ProfileFile, options: PlanOptions, nodes: Sequence[Node], sets: RowSets
    ) -> None:
        _check_names(pipeline, profile, options)
        self._pipeline, self._profile, self._options, self._nodes = pipeline, profile, options, nodes
        self._cores = sum(node.cpus for node in nodes)
        self.overrides = read_overrides(options.settings, pipeline.steps)
        self.stages = lineage.leave_to(options.stages, build_all(pipeline, profile, self.overrides))
        rule = {**pipeline.decode.model_dump(), **self.overrides.get(DECODE, {}), **options.decode}
        self._rule: DecodeRule = validated(DecodeRule, rule, DECODE)
        self._conditions = dict[str, Condition]()
        for name, stage in self.stages.items():
            entry, changes = pipeline.steps[name], self.overrides.get(name, {})
            condition = read_condition(name, changes.get("on", entry.on), changes.get("where", entry.where))
            others = [other for key, other in self.stages.items() if key != name]
            stage.reads_besides = find_reads(name, condition, stage, others, find_fix)
            self._conditions[name] = sets.add(name, replace(condition, every_nth=self._rule.every_nth))
        self.producers = lineage.find_producers(self.stages)

    def plan(self, order: Sequence[str], status: lineage.WeightsStatus, *, calibrated: bool) -> Plan:
        """Return the named steps with all their numbers."""
        decode = self._make_decode_step(order)
        made: dict[str, Step] = {}
        for name in order:
            made[name] = self._make_step(name, status, decode, made)
        asked = list(made.values())
        placed = assign_workers(asked, self._cores, sum(node.gpus for node in self._nodes))
        settings = self._make_gpu_settings(find_calibration(self._options.calibration) if calibrated else None)
        layout = schedule([step for step in placed if step.first_pass], decode, self._nodes, settings)
        waves = split_into_waves(decode, layout.steps, layout.numbers)
        waves = tuple(limit_to_cores(fit_wave(wave, self._nodes), self._cores) for wave in waves)
        first = {step.name: step for wave in waves for step in wave.own}
        second = [_place_second_pass(step, self._options.vram_cap) for step in placed if not step.first_pass]
        second = [fit_later(step, self._nodes) for step in second]
        before = {step.name: step.placement for step in (*asked, *layout.steps) if step.placement.device == "cuda"}
        before = {step.name: step.placement for step in asked} | before
        limits = describe_limits(before, [*first.values(), *second], self._cores)
        return Plan(
            decode=replace(
                waves[0].decode,
                workers=max(wave.decode.workers for wave in waves),
                cpus=max(wave.decode.cpus for wave in waves),
                drops=(),
            ),
            first=tuple(first[name] for name in order if name in first),
            waves=waves,
            second=tuple(second),
            producers=self.producers,
            reasons=layout.reasons,
            limits=limits,
            stand_ins=status.stand_ins,
            skipped=status.left_out if self._options.missing_weights != "fail" else {},
            absent=status.left_out,
            fetch=status.command,
            fetch_mb=sum(status.lock[name].bytes for name in status.problems) / 1e6,
            budgets=self._read_budgets(order),
        )

    def _make_decode_step(self, order: Sequence[str]) -> DecodeStep:
        stages, place = [self.stages[name] for name in order], self._profile.decode
        most = max(1, int(self._cores / place.cpus))
        return DecodeStep(
            config=DecodeConfig(**self._rule.model_dump(exclude={"max_errors"})),
            columns=tuple(
                sorted({column for stage in stages for column in stage.inputs if lineage.is_decoded(column)})
            ),
            halo=max((stage.halo for stage in stages), default=0),
            cpus=place.cpus,
            workers=most if place.workers == "auto" else min(place.workers, most),
            timeout_s=place.timeout_s,
        )

    def _make_step(
        self, name: str, status: lineage.WeightsStatus, decode: DecodeStep, made: Mapping[str, Step]
    ) -> Step:
        """Return a step with the fingerprint of all that decides its results: random weights, but not placement."""
        stage, use, weights = self.stages[name], self._pipeline.steps[name].use, status.of(self.stages[name].weights)
        condition = self._conditions[name]
        producers = [made[source] for source in lineage.find_deciding(stage, condition, self.producers)]
        required = [step for step in producers if not lineage.is_optional(step.name, stage, self.producers)]
        may_miss = stage.weights if self._options.missing_weights == "dummy" and stage.dummy_weights else ()
        missing = {key for key in may_miss if key not in weights}
        entries = {key: status.lock[key] for key in stage.weights}
        facts = {
            "use": use,
            "version": version_of(stage),
            "settings": {item.name: getattr(stage.config, item.name) for item in fields(stage.config)},
            "weights": [f"random {key}" if key in missing else entries[key].sha256 for key in stage.weights],
            "files": [contents(path, urls=stage.reads_urls) for path in stage.files],
            "reads": {DECODE: decode.fingerprint, **{step.name: step.fingerprint for step in producers}},
        }
        read = [made[self.producers[key]] for key in stage.inputs if key in self.producers]
        inputs = {step.values if stage.scope.first_pass else step.alike for step in read}
        inputs |= {made[self.producers[f"{table}/"]].alike for table in stage.input_tables}
        inputs |= {made[self.producers[key]].fingerprint for key in stage.reads_also}  # their nulls are values too
        dummies = {*([name] if missing else []), *(dummy for step in producers for dummy in step.dummies)}
        return Step(
            name=name,
            use=use,
            stage=stage,
            placement=merge_placement(name, stage, self._profile, self.overrides.get(name, {}), self._options.device),
            **identify(facts, condition, required, {decode.fingerprint, *inputs}, by_row=stage.scope is Scope.ROW),
            depends=frozenset(other for step in producers for other in (step.name, *step.depends)),
            needs=frozenset(other for step in required for other in (step.name, *step.needs)),
            weights=weights,
            entries=entries,
            dummies=tuple(sorted(dummies)),
        )

    def _make_gpu_settings(self, calibration: Calibration | None) -> GpuSettings:
        return GpuSettings(
            gpu_vram_gb=self._profile.gpu_vram_gb,
            cap_gb=self._options.vram_cap,
            waves=None if self._profile.waves == "auto" else self._profile.waves,
            pinned={name: PLACEMENT_KEYS & keys.keys() for name, keys in self.overrides.items()},
            calibration=calibration,
        )

    def _read_budgets(self, order: Sequence[str]) -> dict[str, Budget]:
        """Return each step's budget of failed rows: from the command line, the step, or the pipeline."""
        steps, common = self._pipeline.steps, self._pipeline.max_errors
        limits = {name: common if steps[name].max_errors is None else steps[name].max_errors for name in order}
        limits[DECODE] = self._rule.max_errors
        if self._options.max_errors is not None:
            limits = dict.fromkeys(limits, self._options.max_errors)
        return {name: Budget.read(str(limit)) for name, limit in limits.items() if limit is not None}


def _check_names(pipeline: PipelineFile, profile: ProfileFile, options: PlanOptions) -> None:
    if not pipeline.steps:
        raise ConfigError("The pipeline has no steps; add one under `steps:`.", code="FK-NO-STEPS")
    for name in options.stages:
        problem = f"--stages: the pipeline has no step {name!r}."
        check_known(name, pipeline.steps, problem, code="FK-UNKNOWN-STEP")
    aims = [target.step for target in run_targets(profile.targets) if target.step]
    waves = () if profile.waves == "auto" else [name for wave in profile.waves for name in wave]
    named = (("places", profile.steps), ("has targets for", aims), ("has a wave of", waves))
    others = [(verb, name) for verb, names in named for name in names if name not in pipeline.steps]
    shipped = read_pipeline(None) if others else pipeline  # its profiles serve any pipeline, also one with fewer steps
    for verb, name in others:
        if name not in shipped.steps:
            problem = f"The profile {verb} a step {name!r} that the pipeline does not have."
            check_known(name, pipeline.steps, problem, code="FK-UNKNOWN-STEP")


def _place_second_pass(step: Step, cap_gb: float | None) -> Step:
    """Return a second-pass step with the whole GPU up to the cap; with one worker if one call takes all rows."""
    if step.stage.scope is Scope.DATASET:
        step = step.placed(workers=1)
    place = step.placement
    if cap_gb is None or place.device == "cpu":
        return step
    most = max(0.0, cap_gb - CONTEXT_GB)
    return step.placed(vram_gb=min(place.vram_gb or most, most))
