"""The cost of a planned run, by the figures of the output or of another one."""

from collections.abc import Sequence
from contextlib import suppress

from framekiln.contract.errors import UserError
from framekiln.lab.predict.costs import Costs, Work, estimate_costs
from framekiln.lab.predict.source_run import SourceRun, read_source
from framekiln.media.files import MediaFile
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import find_calibration
from framekiln.planning.plan import Plan
from framekiln.runtime.run.change_report import Outlook
from framekiln.runtime.run.request import RunRequest


def read_costs(
    request: RunRequest,
    plan: Plan,
    files: Sequence[MediaFile],
    outlook: Sequence[Outlook],
    *,
    local: bool,
    like: str | None = None,
) -> Costs:
    """Estimate a run by its output's last run, by a calibration of the GPU, or by the last run of an output `like` it.

    Raises UserError: `like` is no output with a finished run.
    """
    if not any(one.todo for one in outlook):
        return Costs(why_not="nothing is left to do")
    store, source = Store(like or request.output), SourceRun(devices=(), steps=(), later=())
    with suppress(*(() if like else (UserError,))):  # nothing was run yet
        source = read_source(store.root, finished=False, earlier=True)
    on_gpu = any(step.placement.device != "cpu" for step in plan.steps)
    calibration = find_calibration(request.options.calibration) if on_gpu else None
    left = {one.step: one.left for one in outlook}
    return estimate_costs(Work(plan=plan, files=files, left=left, local=local), source, store, calibration)
