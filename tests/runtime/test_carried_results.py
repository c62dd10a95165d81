"""Files that changed or went cost themselves alone: results of the other files of their unit are taken over."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units
from framekiln.runtime.check.check import check_output
from tests.support.media.collections_factory import clip, photo
from tests.support.runs.engine_factory import request, rows, table
from tests.support.runs.serial_engine import without_ray

STEPS = {
    name: {"use": f"tests.toys:{kind}"}
    for name, kind in (("crc", "Checksum"), ("near", "Neighbours"), ("count", "Count"))
}
FILES = 24  # units of six with one decode worker


@pytest.fixture(autouse=True)
def _serial():
    with without_ray():
        yield


def run(source, out):
    """Run the steps, and return how many rows each computed, and the errors by kind."""
    result = Job(request(source, out, {"steps": STEPS}, {"decode": {"workers": 1}})).run()
    return {name: totals.rows for name, totals in result.figures.steps.items() if totals.rows}, dict(result.errors)


def make(folder, number, seed):
    """The file of a number: a clip of four frames, a damaged photo, or a photo."""
    if number == 3:
        clip(folder / "f03.png", seed, 4)
    elif number == 5:
        (folder / "f05.png").write_text(f"no photo {seed}")
    else:
        photo(folder / f"f{number:02}.png", seed)


def same_as_alone(source, out, alone):
    """Whether the output's tables are those of a first run of the same files."""
    run(source, alone)
    names = ("crc", "next_crc")
    tables = [table(each, "frames").select(["media_id", "frame_index", *names]).to_pylist() for each in (out, alone)]
    counts = [sorted(map(str, rows(each, "counts").to_pylist())) for each in (out, alone)]
    errors = [
        sorted(rows(each, "errors")["media_id"].to_pylist()) if Store(str(each)).names("errors") else []
        for each in (out, alone)
    ]
    return tables[0] == tables[1] and counts[0] == counts[1] and errors[0] == errors[1]


def test_a_unit_that_lost_files_computes_none_of_the_others(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(FILES):
        make(source, number, number)
    assert run(source, out)[0] == dict.fromkeys(("decode", *STEPS), FILES + 2)
    assert max(len(unit.media) for unit in read_units(Store(str(out)))) == 6
    (source / "f00.png").rename(tmp_path / "away.png")
    assert run(source, out) == ({}, {"unsupported": 1})
    make(source, 3, 33)
    counts, _ = run(source, out)
    assert counts == {"decode": 4, "crc": 4, "near": 4, "count": 4}
    assert same_as_alone(source, out, tmp_path / "alone") and not check_output(Store(str(out)), {}, {})
    (tmp_path / "away.png").rename(source / "f00.png")
    assert run(source, out)[0].get("crc") is None  # it came back as it was


EDITS = st.lists(
    st.tuples(st.sampled_from(["remove", "change", "touch"]), st.integers(0, FILES - 1)), min_size=1, max_size=5
)


@pytest.mark.heavy
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=st.lists(EDITS, min_size=1, max_size=3))
def test_whatever_changes_tables_are_those_of_a_first_run_and_only_new_content_is_computed(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("edits")
    source, out = folder / "in", folder / "out"
    source.mkdir()
    for number in range(FILES):
        make(source, number, number)
    run(source, out)
    for step, edits in enumerate(runs):
        changed = set()
        for kind, number in edits:
            path = source / f"f{number:02}.png"
            if kind == "remove":
                path.unlink(missing_ok=True)
                changed.discard(number)
            elif kind == "change" or path.exists():
                if kind == "change":
                    make(source, number, 100 * (step + 1) + number)
                os.utime(path, ns=(0, (step + 1) * 1000 + len(changed)))
                changed.add(number)
        counts, _ = run(source, out)
        expected = sum(4 if number == 3 else number != 5 for number in changed)
        assert (counts.get("decode", 0), counts.get("crc", 0)) == (expected, expected)
        assert same_as_alone(source, out, folder / f"alone{step}")
        assert not check_output(Store(str(out)), {}, {})
