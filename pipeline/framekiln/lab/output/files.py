"""The files that a bench writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framekiln.contract.errors import OutputError


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Make the folder of a file that the block writes.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(
            f"{str(path)!r} cannot be written ({reason}); choose another path.", code="FK-BENCH-NOT-WRITABLE"
        ) from error
