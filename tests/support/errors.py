"""Expected mistakes of a user's, by their code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from framekiln.contract.errors import UserError


@contextmanager
def fails(code: str, *values: str) -> Iterator[None]:
    """Expect an error that a user can fix, with this code; its message is one sentence that has the values."""
    with pytest.raises(UserError) as error:
        yield
    message = str(error.value)
    assert error.value.code == code, message
    assert [value for value in values if value not in message] == [], message
    assert "\n" not in message or code == "FK-WEIGHTS-MISSING", "which lists all that is missing"
