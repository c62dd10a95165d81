"""A row's work on a GPU, counted on any machine: kernels of each step's networks, and their least time.

A *bound* is a time that no run can beat: all operations at the data sheet's rate, each weight read once a call, a gap
between kernels. The *roofline* is longer: each kernel takes the longer of its operations and its bytes, and no data
stays in a cache between kernels. Models reach a share of the roofline (`reached`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract.columns import SOURCE, is_pixel_column, pack, reduction, short_side
from framekiln.contract.testing.sample import sample_rows
from framekiln.device import CountedCall, counted_calls, made_weights
from framekiln.device.model import Counted
from framekiln.lab.predict.gpu_specs import GpuSpecs
from framekiln.planning.plan import Plan
from framekiln.planning.step import Step
from framekiln.runtime.recovery.child_tasks import not_set_up
from framekiln.runtime.stage_setup import set_up

GAP_S = 0.5e-6
"""Seconds between two kernels of a CUDA graph: 3.4 us each, 2.9 of them the kernel's, NVIDIA's "Getting started with
CUDA graphs" (V100). Launches from Python take some ten times as long, which a bound must not count on."""


Seconds = NDArray[np.float64]
"""The least seconds of a row: of arithmetic, memory and launches. They overlap, so the largest of them is the bound."""


@dataclass(frozen=True, kw_only=True)
class NetworkWork:
    """One network of a step."""

    rows: float  # rows of the network for one row of the step, such as six crops of a photo
    call: CountedCall
    eager: bool = False  # never compiled, whatever the profile says

    def bound(self, gpu: GpuSpecs, batch: int) -> Seconds:
        """Return the bound for a row of a step with calls of `batch` rows."""
        rows, kernels = max(1.0, batch * self.rows), self.call.kernels
        arithmetic = sum(count * kernel.flops / (gpu.tflops(kernel.precision) * 1e12) for kernel, count in kernels)
        memory = self.call.weights / rows / (gpu.bandwidth_gb_s * 1e9)
        launches = GAP_S * sum(count for kernel, count in kernels if kernel.flops) / rows
        return self.rows * np.array([arithmetic / self.call.rows, memory, launches])

    def roofline_s(self, gpu: GpuSpecs, batch: int) -> float:
        """Return the roofline's seconds for a row of a step with calls of `batch` rows."""
        rows, seconds = max(1.0, batch * self.rows), 0.0
        for kernel, count in self.call.kernels:
            arithmetic = kernel.flops / self.call.rows / (gpu.tflops(kernel.precision) * 1e12)
            moved = kernel.moved / self.call.rows + kernel.held / rows
            seconds += count * max(arithmetic, moved / (gpu.bandwidth_gb_s * 1e9))
        return self.rows * seconds


@dataclass(frozen=True, kw_only=True)
class GpuWork:
    """The networks of one step, which run one after the other."""

    networks: Sequence[NetworkWork]
    items: Mapping[str, float] = field(default_factory=dict)  # the numbers of faces, ... of a row that they follow

    @property
    def flops(self) -> float:
        calls = ((network.rows / network.call.rows, network.call) for network in self.networks)
        return sum(part * count * kernel.flops for part, call in calls for kernel, count in call.kernels)

    @property
    def precisions(self) -> tuple[str, ...]:
        kernels = (kernel for network in self.networks for kernel, _ in network.call.kernels)
        return tuple(sorted({kernel.precision for kernel in kernels if kernel.flops}))

    def bound(self, gpu: GpuSpecs, batch: int) -> Seconds:
        return sum((network.bound(gpu, batch) for network in self.networks), np.zeros(3))

    def roofline_s(self, gpu: GpuSpecs, batch: int) -> float:
        """Return the roofline's seconds for a row."""
        return sum(network.roofline_s(gpu, batch) for network in self.networks)


Items = Mapping[str, Mapping[str, float]]
"""For each step, the number of faces, masks, ... of a row, by kind."""


class WorkCounter:
    """Counts each step once for its settings and precision, on an artificial photo of some size.

    Stages are set up on the CPU with artificial weights, and called with networks that compute nothing. So the numbers
    of their items are artificial too. If `items` has real rows' numbers of a step, its work is scaled to them.
    """

    def __init__(self, megapixels: float, items: Items) -> None:
        self._megapixels, self._items = megapixels, items
        self._known: dict[tuple[Any, ...], GpuWork | str] = {}
        self.kinds = set[str]()  # of all items that the counted steps work on

    def count(self, plan: Plan) -> tuple[dict[str, GpuWork], dict[str, str]]:
        """Return the work of steps with a model on a GPU, and why the others' work is unknown."""
        wanted = [step for step in plan.first if step.placement.device != "cpu"]
        keys = {step.name: (step.fingerprint, step.placement.precision) for step in wanted}
        if not all(key in self._known for key in keys.values()):
            needed = {name for step in wanted for name in (step.name, *step.depends)}
            rows = _make_photo(plan.decode.columns, self._megapixels)
            for step in plan.first:
                if step.name in needed:
                    rows, calls, made, why = _call(step, rows)
                    work = _join(calls, made, self._items.get(step.name)) if calls else why
                    self._known[step.fingerprint, step.placement.precision] = work
                    self.kinds |= made.keys()
        found = {name: self._known[key] for name, key in keys.items()}
        counted = {name: work for name, work in found.items() if isinstance(work, GpuWork)}
        return counted, {name: why for name, why in found.items() if isinstance(why, str)}


def _call(step: Step, rows: pa.Table) -> tuple[pa.Table, list[Counted], Mapping[str, int], str]:
    """Return the rows with a step's columns, its networks' calls, its items, and why there is no call."""
    ready = not_set_up(replace(step, weights={}, placement=step.placement.counted()))
    try:
        with made_weights(), counted_calls():
            set_up(ready)
        ready.stage.item_counts.take()
        with counted_calls() as calls:
            result = ready.stage(rows.select(ready.stage.inputs))
    except Exception as error:  # of any class: a user's stage, called with zeros
        schema = step.stage.outputs
        result = pa.table([pa.nulls(rows.num_rows, kind.type) for kind in schema], schema=schema)
        calls, why = [], f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    else:
        why = "no network of torch was called"
    for name in result.column_names:
        rows = rows.append_column(name, result[name])
    return rows, calls, ready.stage.item_counts.take(), why


def _join(calls: Sequence[Counted], made: Mapping[str, int], items: Mapping[str, float] | None) -> GpuWork:
    """Return the work of calls on one row: a network's rows as many as made items, or a multiple, follow real ones.

    `items`: None if the step has no measured rows. A kind of which several were made is one that a step may not count
    where it finds none. Calls of one network with results of other sizes had inputs of other sizes, and are taken for
    another network.
    """
    networks, followed = list[NetworkWork](), dict[str, float]()
    groups = defaultdict[tuple[Any, ...], list[CountedCall]](list)
    for key, call in calls:
        groups[key, call.result[0][1:]].append(call)
    for ((_, eager), _), own in groups.items():
        rows = float(sum(call.rows for call in own))
        kinds = [kind for kind, count in made.items() if count and rows % count == 0]
        kind = max(kinds, key=lambda kind: made[kind], default="")
        count = made.get(kind, 1)
        real = count if items is None else items.get(kind, 0.0 if count > 1 else 1.0)
        if max(count, real) > 1 or real < 1:  # others are one a row by their nature, such as views of a photo
            followed[kind] = real
        networks.append(NetworkWork(rows=rows * real / count, call=own[0], eager=eager))
    return GpuWork(networks=networks, items=followed)


def _make_photo(columns: Sequence[str], megapixels: float) -> pa.Table:
    height = max(32, round((megapixels * 1e6 * 3 / 4) ** 0.5))
    width = height * 4 // 3
    rows = sample_rows([*SOURCE.names, *(name for name in columns if not is_pixel_column(name))], 1)
    for name, value in (("height", height), ("width", width)):
        place, kind = rows.column_names.index(name), rows.schema.field(name)
        rows = rows.set_column(place, kind, pa.array([value], kind.type))
    for name in filter(is_pixel_column, columns):
        step = reduction(height, width, short_side(name))
        rows = rows.append_column(name, pack([np.zeros((height // step, width // step, 3), np.uint8)]))
    return rows
