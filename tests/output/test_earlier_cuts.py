"""An output of an earlier version, with films in segments by bytes, is continued: what it has is not computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from framekiln.contract.output_names import COLUMNS, FRAMES, UNITS
from framekiln.job import Job
from framekiln.media.config import DecodeConfig
from framekiln.media.units import Unit
from tests.support.media.segmented_films import FRAMES as COUNT
from tests.support.media.segmented_films import GOP, damage, sample_film
from tests.support.runs.engine_factory import order, table
from tests.support.runs.serial_engine import without_ray


def set_defaults(patch: pytest.MonkeyPatch, cls: type, **values: object) -> None:
    """Give the fields of a dataclass other defaults."""
    patch.setattr(cls.__init__, "__kwdefaults__", cls.__init__.__kwdefaults__ | values)


def test_a_film_cut_by_bytes_keeps_its_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The film is damaged, so that its rows do depend on where it is cut."""
    out, film = tmp_path / "out", tmp_path / "in" / "film.mov"
    film.parent.mkdir()
    damage(sample_film("b-frames"), film, 28, 31)
    small = {"segment_bytes": film.stat().st_size // 4, "cell_frames": 10, "cell_pixels": 1, "share_bytes": 1000}
    set_defaults(monkeypatch, DecodeConfig, **small, packet_rows=8, clip_frames=5)
    request = order(film.parent, out, {"crc": ("Checksum", {})})
    with without_ray(), monkeypatch.context() as earlier:
        set_defaults(earlier, Unit, read_rules=1)
        assert Job(request).run().work.left
    rows = table(out, FRAMES)
    parts = {path: path.stat().st_mtime_ns for path in [*(out / COLUMNS).rglob("*.parquet"), *(out / UNITS).glob("*")]}
    lost = [path for path in parts if path.name.split(".")[1].startswith("00000060") and "crc-" in path.parent.name]
    (lost[0]).unlink()
    with without_ray():
        assert Job(request).run().work.left
        assert not Job(request).run().work.left
    assert table(out, FRAMES).equals(rows)
    repeated = [path for path, time in parts.items() if path.stat().st_mtime_ns != time]
    spans = [tuple(map(int, path.name.split(".")[1].split("-"))) for path in repeated]
    assert lost[0] in repeated and all(60 <= start < stop or start == stop == COUNT for start, stop in spans)
    assert max(stop for start, stop in spans if start < stop) <= 60 + 4 * GOP
    with without_ray():
        Job(order(film.parent, tmp_path / "new", {"crc": ("Checksum", {})})).run()
    assert table(tmp_path / "new", FRAMES).num_rows >= rows.num_rows
