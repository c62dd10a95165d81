"""The fuzz target itself: inputs are decoded, a finding is kept, and it continues where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from framekiln.media.files import MediaFile
from tests.faults.fuzz import fuzz_media
from tests.faults.fuzz.seeds import seeds
from tests.support.media.media_factory import film, numbered


@pytest.mark.heavy
@pytest.mark.slow
def test_some_damaged_files_keep_all_promises(tmp_path: Path) -> None:
    first = fuzz_media.run(tmp_path, 7, minutes=0.1)
    second = fuzz_media.run(tmp_path, 7, minutes=0.02)
    assert first["inputs"] > 0 and (first["broken"], second["broken"]) == (0, 0)
    assert int((tmp_path / "next-7").read_text()) == first["inputs"] + second["inputs"]


def test_a_promise_that_is_not_kept_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = film(tmp_path / "a.mkv", [numbered(i) for i in range(3)]).read_bytes()
    assert fuzz_media.check_bytes(whole, tmp_path / "input") == (3, [])
    monkeypatch.setattr(fuzz_media, "CPU_SECONDS", 0.0)
    with pytest.raises(fuzz_media.BrokenError, match=" s: "):
        fuzz_media.check_bytes(whole, tmp_path / "input")
    gone = MediaFile(media_id="x", path=str(tmp_path / "gone"), size=0, mtime_ns=0)
    assert fuzz_media.outcome(gone)[1:] == (0, ["None unreadable: No such file or directory"])


def test_a_number_gives_the_same_file_again() -> None:
    files = {name: data for name, data in seeds().items() if name != "moving.avif"}
    assert [fuzz_media.mutated(files, 1, n) for n in range(50)] == [fuzz_media.mutated(files, 1, n) for n in range(50)]
    assert len({fuzz_media.mutated(files, 1, n) for n in range(50)}) > 45
