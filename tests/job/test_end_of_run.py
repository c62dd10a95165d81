"""The end of a run opens each file of `frames/` at most once, and none where nothing changed."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pyarrow as pa
import pytest

from framekiln.job import Job
from framekiln.output import kept_tables
from framekiln.output.kept_tables import KeptTables, spread
from framekiln.output.object_store import Store
from tests.support.media.collections_factory import photo
from tests.support.runs.engine_factory import ALL, order
from tests.support.runs.serial_engine import without_ray

STEPS = {name: ALL[name] for name in ("crc", "near", "count")}


@pytest.fixture
def opened(monkeypatch):
    """The objects that this process opens in any store, counted."""
    paths, plain = Counter(), Store.open

    @contextmanager
    def count(store, path):
        paths[path] += 1
        with plain(store, path) as source:
            yield source

    monkeypatch.setattr(Store, "open", count)
    return paths


def frames(opened: Counter) -> dict[str, int]:
    found = {path: times for path, times in opened.items() if path.startswith("frames/")}
    opened.clear()
    return found


def test_each_file_of_the_frames_is_opened_once_at_most_and_none_where_nothing_changed(tmp_path, opened):
    for number in range(40):
        photo(tmp_path / "in" / f"{number:02}.png", number)
    job = order(tmp_path / "in", tmp_path / "out", STEPS)
    with without_ray():
        assert Job(job).run().frames == 40
        found = frames(opened)
        assert len(found) == len(Store(str(tmp_path / "out")).names("frames")) > 2
        assert max(found.values()) == 1
        page = (tmp_path / "out" / "report.html").read_bytes()
        again = Job(job).run()
        assert (again.frames, again.errors, again.passed_over) == (40, {}, 0)
        assert not frames(opened) and (tmp_path / "out" / "report.html").read_bytes() == page
        (tmp_path / "in" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        (tmp_path / "in" / "note.txt").write_text("a note")
        grown = Job(job).run()
        assert max(frames(opened).values()) == 1
        for result in (grown, Job(job).run()):
            assert (result.frames, sum(result.errors.values()), result.passed_over) == (40, 1, 1)
        assert not frames(opened)


def test_kept_tables_are_the_sampled_ones_and_closed_at_the_end(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(kept_tables, "MOST_FILES", 3)
    store = Store(str(tmp_path))
    paths = [f"table/{number}.parquet" for number in range(9)]
    for number, path in enumerate(paths):
        store.write_table(path, pa.table({"a": range(number)}))
    with KeptTables(store.root) as tables:
        assert [tables.count_rows(path) for path in paths] == list(range(9))
        sampled = spread(paths, 3)
        values = [tables.read_table(path)["a"].to_pylist() for path in sampled]
        assert values == [list(range(paths.index(path))) for path in sampled]
        with tables.parquet(sampled[0]) as table:
            source = table
    assert opened == Counter(paths) and source.closed
