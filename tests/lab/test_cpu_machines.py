"""Times that `benchmarks.cpu_machines` measured lie over their bounds, and nine of ten within their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cpu_machines import cases, halves
from framekiln.lab.predict.reached import usual_share


@pytest.mark.heavy
def test_times_on_machines_kept_aside_are_within_the_intervals():
    known = list(cases(json.loads((Path(__file__).parent / "cpu_machines.json").read_text())))
    assert all(case.bound < case.seconds for case in known)
    chosen, models, machines = halves(known).values()
    assert max(case.needed for case in chosen) < usual_share().high / usual_share().central
    assert [(sum(case.is_held for case in half), len(half)) for half in (models, machines)] == [(18, 18), (112, 120)]
