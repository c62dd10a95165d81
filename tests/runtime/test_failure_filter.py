"""Which failures `framekiln retry` takes."""

from __future__ import annotations

from framekiln.runtime.run.retry import FailureFilter


def test_files_that_are_no_media_are_retried_only_by_their_kind() -> None:
    assert FailureFilter().matches("decode", "corrupt") and FailureFilter(step="decode").matches("decode", "corrupt")
    assert not FailureFilter().matches("decode", "passed_over")
    assert not FailureFilter(step="decode").matches("decode", "passed_over")
    assert FailureFilter(kind="passed_over").matches("decode", "passed_over")
    assert not FailureFilter(kind="corrupt").matches("decode", "empty")
