"""A stage as a model of the bench: whole calls on decoded rows, with its networks as parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import ConfigError
from framekiln.device import flops_by_module, modules_of, recorded_calls, torch, wait
from framekiln.lab.measure.precision import STAGE, check_cast
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.models.factory import RANDOM, REAL
from framekiln.lab.models.sample_rows import batch_of, open_rows, sample_rows, write_rows
from framekiln.lab.modules import UnsupportedError
from framekiln.lab.output.cells import Cell
from framekiln.media.discovery.listing import list_inputs
from framekiln.planning.manifest import PipelineFile, read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import this_machine
from framekiln.planning.step import Step
from framekiln.runtime.recovery.child_tasks import not_set_up
from framekiln.runtime.stage_setup import set_up


@dataclass(frozen=True, kw_only=True)
class StageModel:
    """A step of a plan and its rows; its batch is in rows, and it has no other axis."""

    name: str
    step: Step
    rows: Path  # Arrow file, images of one size
    weights: str  # real, seeded random, or none

    def load(self) -> None:
        """Load nothing: each cell sets the stage up."""

    def prepare(self, cell: Cell, device: str) -> Prepared:
        """Set the stage up for a cell, with the rows in turn.

        Raises UnsupportedError: a stage cannot run in this cell.
        """
        rows, began = open_rows(self.rows), time.perf_counter()
        step = not_set_up(replace(self.step, placement=self._place(cell, device)))
        set_up(step)
        batches: list[pa.Table] = []

        def before(number: int) -> None:
            batches[:] = [batch_of(step.stage, rows, cell.batch, cell.batch * number)]

        before(0)
        wait(device)
        return Prepared(
            call=lambda: step.stage(batches[0]),
            device=device,
            items=cell.batch,
            frames=1,
            roots={f"{type(net).__name__}": net for net in modules_of(step.stage)},
            before=before,
            agreement=step.stage.agreement,
            set_up_s=time.perf_counter() - began,
            alone=lambda: self._repeat_calls(step, batches[0]),
        )

    @staticmethod
    def _repeat_calls(step: Step, batch: pa.Table) -> Callable[[], None] | None:
        """Return a function that repeats the model's calls on their inputs on the device; None without calls."""
        with recorded_calls() as calls:
            step.stage(batch)

        def repeat() -> None:
            with torch.inference_mode():
                for call in calls:
                    call()

        return repeat if calls else None

    def flops(self, cell: Cell, prepared: Prepared) -> Mapping[str, float]:  # noqa: ARG002
        prepared.before(0)
        return flops_by_module(prepared.call)

    def about(self) -> dict[str, Any]:
        """Return `params`, `parts` (parameters by network) and `axes`, from one set-up of the stage."""
        return self._facts

    @cached_property
    def _facts(self) -> dict[str, Any]:
        roots = self.prepare(Cell(), self.step.placement.device).roots
        parts = {name: sum(tensor.numel() for tensor in net.parameters()) for name, net in roots.items()}
        return {"params": sum(parts.values()), "parts": parts, "axes": {"batch": 1}}

    def _place(self, cell: Cell, device: str) -> Any:
        if cell.size is not None or cell.frames is not None:
            raise UnsupportedError("a stage takes decoded rows: it has no size or frames to vary")
        check_cast(cell.precision, STAGE)
        if cell.compile not in ("off", "default"):
            raise UnsupportedError("stages are compiled in the default mode only")
        if device not in self.step.stage.devices:
            raise UnsupportedError(f"the stage does not run on {device}")
        changed: dict[str, Any] = {"device": device, "precision": cell.precision}
        return replace(
            self.step.placement,
            batch=cell.batch,
            compile=cell.compile == "default",
            channels_last=cell.channels_last,
            **changed,
        )


def stage_source(
    name: str,
    sources: Sequence[str],
    device: str,
    folder: Path,
    weights_dir: Path | None = None,
    rows: int = 8,
    pipeline: PipelineFile | None = None,
) -> StageModel:
    """Plan a step, decode some rows into a folder for it as its pipeline does, and return it as a model.

    Steps that it reads run on the rows; steps with a model run in a child process. Raises ConfigError: it is a step of
    the second pass, or nothing made a column that it reads. Raises InputError: the inputs have no frame.
    """
    chosen: dict[str, Any] = {"stages": (name,), "device": device, "weights_dir": weights_dir}
    options = PlanOptions(**chosen, missing_weights="dummy", accept_license=True)
    places = read_profile("cpu-only"), options, [this_machine()]
    plan = make_plan(pipeline or read_pipeline(None), *places, calibrated=False)
    if (step := next((one for one in plan.first if one.name == name), None)) is None:
        problem = f"The step {name!r} is of the second pass, which works on whole tables; choose one of the first pass."
        raise ConfigError(problem, code="FK-BENCH-SECOND-PASS")
    sample = sample_rows(list_inputs(sources), plan, [step], rows)
    if missing := [column for column in step.stage.inputs if column not in sample.rows.column_names]:
        problem = f"Nothing made the column {missing[0]!r} of {name!r} ({'; '.join(sample.failed.values())})."
        raise ConfigError(problem, code="FK-BENCH-BUILD")
    path = write_rows(sample.sizes(step.stage.scope)[-1], folder / f"{name}.arrow")
    weights = "none" if not step.stage.weights else RANDOM if step.name in step.dummies else REAL
    # a step without a model was set up here for the rows, and a set-up flow cannot be pickled
    return StageModel(name=name, step=not_set_up(step), rows=path, weights=weights)
