"""Energy of a loop by a counter of joules, and calls on empty caches."""

from __future__ import annotations

import pytest

from framekiln.lab.measure.device_facts import EnergyCounter
from framekiln.lab.measure.prepared import measure_speed
from framekiln.lab.measure.timed import MeasureOptions
from framekiln.lab.output.cells import Cell
from tests.lab.test_cells import QUICK, measure, process


class Library:
    """NVML's interface to one GPU, whose counter rises by 1.5 J a reading."""

    total = 1000

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "GPU-1":
            raise RuntimeError("not found")
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        self.total += 1500
        return self.total


class OldGpu(Library):
    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        raise RuntimeError("not supported")


def energy(nvml, seconds=2.0, uuid="GPU-1", device="cuda"):
    counter = EnergyCounter(device, nvml, uuid)
    counter.mark()
    return counter.since_mark(seconds)


def test_the_energy_of_a_loop_is_the_difference_of_the_counter():
    assert energy(Library()) == (1.5, "")


@pytest.mark.parametrize(
    "made",
    [
        energy(Library(), seconds=0.1),
        energy(Library(), uuid="GPU-2"),
        energy(OldGpu()),
        energy(Library(), device="cpu"),
    ],
)
def test_without_a_figure_there_is_a_reason(made):
    assert made[0] is None and made[1]


def test_a_cell_has_no_energy_on_a_cpu_and_says_why():
    result = measure("plain")
    assert result.item_j is None and result.no_energy


def test_the_time_of_emptying_the_caches_is_in_no_figure():
    cold = measure("plain", {"cold_cache": True}, batch=2)
    assert cold.items_per_s == pytest.approx(3 * 2 / (sum(cold.latency_ms.values) / 1000)) and cold.notes
    prepared = process("plain").model().prepare(Cell(), "cpu")
    assert measure_speed(cold, prepared, MeasureOptions(**QUICK).limits, cold=True).item_j is None
