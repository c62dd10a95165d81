"""The plan of a run: placement of each step, and remaining work. Nothing is started."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from framekiln.api import html
from framekiln.api.options import Input, Manifest, Options, Place, Settings, Steps, shows
from framekiln.api.request import make_request
from framekiln.contract.errors import UserError, WeightsError
from framekiln.contract.row_errors import DECODE
from framekiln.device.machine_facts import read_machine
from framekiln.job import Job
from framekiln.media.files import MediaFile
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import find_calibration
from framekiln.planning.machine import examine
from framekiln.planning.plan import Plan, make_plan
from framekiln.planning.processes.resources import Node, this_machine
from framekiln.reporting.plan_facts import plan_facts
from framekiln.reporting.terminal.console import Terminal, print_wrapped, printed
from framekiln.reporting.terminal.tables import outlook_table, plan_tables, print_outlook, print_plan
from framekiln.runtime.run.change_report import Changes, Outlook
from framekiln.runtime.run.request import RunRequest

if TYPE_CHECKING:
    from framekiln.lab.predict.costs import Costs


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The steps in the order they run, each with its placement, and the remaining work."""

    planned: Plan
    notes: Sequence[str] = ()  # about this machine's GPUs, options without effect, and the engine
    work: tuple[Changes, Sequence[Outlook]] | None = None  # None without an input or an output
    refusal: UserError | None = None  # why a run could not start here; None if it could
    costs: "Costs | None" = None  # cost of the remaining work; None without an input or an output

    @property
    def steps(self) -> list[str]:
        """Names of the steps, after decoding."""
        return [step.name for step in self.planned.steps]

    @property
    def fits(self) -> bool:
        """True if these machines can run it."""
        return self.refusal is None

    @property
    def absent(self) -> Mapping[str, str]:
        """Steps left out, with the reason: they lack weights, or a column of such a step."""
        return self.planned.absent

    @property
    def fetch(self) -> str:
        """The command that fetches missing weights; empty if none are missing."""
        return self.planned.fetch

    @property
    def to_do(self) -> Mapping[str, int]:
        """Files that each step would process, decoding included; empty without an input or an output."""
        return {step.step: step.todo for step in self.work[1]} if self.work else {}

    def to_dict(self, price_per_hour: float | None = None) -> dict[str, Any]:
        """Return what `framekiln plan --json` prints; docs/hardware/planning.md describes the keys.

        With a price of the machine, in any currency, costs have `money` beside `hours`.
        """
        facts = plan_facts(self.planned, notes=self.notes, work=self.work, refusal=self.refusal)
        facts["costs"] = self.costs and self.costs.to_dict(price_per_hour)
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain

    def __str__(self) -> str:
        """Return what `framekiln plan` prints."""
        return printed(self.print_on)

    def print_on(self, console: Terminal, price_per_hour: float | None = None) -> None:
        """Print the plan, the remaining work, and its cost."""
        print_plan(console, self.planned)
        for note in self.notes:
            print_wrapped(console, note)
        if self.work:
            print_outlook(console, *self.work)
        self.print_costs(console, price_per_hour)

    def print_costs(self, console: Terminal, price_per_hour: float | None = None) -> None:
        """Print the cost of the remaining work; nothing without an input or an output."""
        if self.costs is not None:
            from framekiln.reporting.predict import print_costs

            print_costs(console, self.costs, price_per_hour)

    def _repr_html_(self) -> str:
        """Return the tables that `framekiln plan` prints, and its notes, for notebooks."""
        facts = self.to_dict()
        shown = [*plan_tables(self.planned), *([outlook_table(self.work[1])] if self.work else [])]
        if self.costs is not None:
            from framekiln.reporting.predict import costs_table

            shown.append(costs_table(self.costs))
        absent = [f"Lacks weights: {name}: {why}" for name, why in self.absent.items()]
        fetch = [f"To fetch what is missing: {self.fetch}"] if self.fetch else []
        refusal = [str(self.refusal)] if self.refusal else []
        lines = html.lines([*facts["changes"], *absent, *fetch, *facts["notes"], *refusal])
        return "".join(map(html.table, shown)) + lines


@shows(Options)
def plan(
    input: Input = None,
    output: Place | None = None,
    *,
    profile: Manifest = "cpu-only",
    pipeline: Manifest | None = None,
    stages: Steps = None,
    settings: Settings = None,
    like: Place | None = None,
    **options: Unpack[Options],
) -> RunPlan:
    """Check a run against this machine or a cluster, and return what would run where.

    It takes the arguments of `framekiln.run`. With an input and an output it also lists the work that is left. It
    estimates the cost of that from runs into the output, a run into the output `like`, or a calibration.

    Raises:
        UserError: a name, a file, a setting or the input is wrong. A plan that does not fit the machines, or lacks
            weights, raises nothing: `fits` is false, and `refusal` says why.

    >>> import framekiln
    >>> framekiln.plan(stages=["lighting"]).steps
    ['lighting']
    """
    chosen: dict[str, Any] = {"profile": profile, "pipeline": pipeline, "stages": stages, "settings": settings}
    return make(make_request(input, output, **chosen, **options), like=None if like is None else os.fspath(like))


def make(request: RunRequest, on_wait: Callable[[str], None] = lambda _: None, *, like: str | None = None) -> RunPlan:
    """Return the plan of a request; `on_wait` gets sentences about a cluster or slow files.

    Its costs come from the last run into the output, or into the output `like`.

    Raises UserError: see `plan`.
    """
    if request.address is None:
        return _plan_on(request, [this_machine()], on_wait, like)
    from framekiln.engine.ray.session import session

    with session(request.address, on_wait) as nodes:
        return _plan_on(request, nodes, on_wait, like)


def _plan_on(request: RunRequest, nodes: Sequence[Node], on_wait: Callable[[str], None], like: str | None) -> RunPlan:
    planned = make_plan(request.pipeline, request.profile, request.options, nodes, check_weights=False)
    refusal, notes = examine(planned, request.options, nodes, here=request.address is None)
    engine, why, work, costs = "ray", "", None, None
    if request.inputs and request.output:
        job = Job(request, on_wait=on_wait)
        changes, outlook, (engine, why) = job.preview(planned)
        work = changes, outlook
        costs = _read_costs(request, planned, job.media, outlook, local=engine == "local", like=like)
    pace = ""
    if costs is None or not costs.limit:
        from framekiln.lab.predict.pace import describe_pace

        gpu = next(iter(read_machine().seen if request.address is None else ()), None)
        device, gigabytes = (gpu.name, gpu.total_gb) if gpu else ("", None)
        pace = describe_pace(planned, nodes, device, gigabytes, request.profile.gpu_vram_gb)
    if engine == "local":  # it uses one process a core, whatever the plan's workers
        planned = replace(planned, limits="")
    return RunPlan(
        planned=planned,
        notes=tuple(filter(None, (*notes, why, pace))),
        work=work,
        refusal=refusal or _explain_missing_weights(planned, request),
        costs=costs,
    )


def _read_costs(
    request: RunRequest,
    planned: Plan,
    files: Sequence[MediaFile],
    outlook: Sequence[Outlook],
    *,
    local: bool,
    like: str | None,
) -> "Costs":
    """Estimate a run by its output's last run, a GPU's calibration, or the last run of the output `like`.

    Raises UserError: `like` is no output with a finished run.
    """
    from framekiln.lab.predict.costs import Costs, PlannedRun, estimate_costs  # needs scipy, which a run does not
    from framekiln.lab.predict.source_run import SourceRun, read_source

    if not any(one.todo for one in outlook):
        return Costs(why_not="nothing is left to do")
    store, source = Store(like or request.output), SourceRun(devices=(), steps=(), later=())
    with suppress(*(() if like else (UserError,))):  # no run yet
        source = read_source(store.root, finished=False, earlier=True)
    on_gpu = any(step.placement.device != "cpu" for step in planned.steps)
    calibration = find_calibration(request.options.calibration) if on_gpu else None
    left = {one.step: one.left for one in outlook}
    rows = {one.step: one.rows for one in outlook if one.rows is not None and one.step != DECODE}
    work = PlannedRun(plan=planned, files=files, left=left, rows=rows, local=local)
    return estimate_costs(work, source, store, calibration)


def _explain_missing_weights(planned: Plan, request: RunRequest) -> WeightsError | None:
    """Return why a run would stop for missing weights. Without an input it takes the samples, and leaves steps out."""
    if request.options.missing_weights != "fail" or not planned.absent or not request.inputs:
        return None
    get = f"get them by `{planned.fetch}`, or " if planned.fetch else ""
    return WeightsError(
        f"A run would stop, as weights of {', '.join(planned.absent)} are missing: {get}leave these steps out by "
        "--missing-weights skip.",
        code="FK-WEIGHTS-MISSING",
    )
