"""Lists of files as input: text or Parquet, distinguished from media by content."""

# Names stay strings as the system gave them, and pathlib would not keep them so.
# ruff: noqa: PTH110, PTH118, PTH120
import os
import posixpath
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from framekiln.contract.errors import InputError, did_you_mean
from framekiln.media.file_types import is_text
from framekiln.media.media_ids import escape, is_url

_HEAD_BYTES = 1 << 16  # examined to distinguish text from media
_BLOCK = 1 << 20  # bytes of one read
_MAX_LINE = 1 << 16  # bytes: Linux accepts paths of 4,096, object stores keys of 1,024
_MAX_ENTRIES = 10_000_000  # 9 GB of memory in the driver; more need several runs
_CHECKED = 1000  # first lines, at least one with an existing file: otherwise the text is hardly a list


def read_path_list(stream: Any, source: str) -> list[str] | None:
    """Return the paths (absolute, or URLs) of a list in its order, without duplicates; None if the file is no list.

    Relative entries are resolved against the folder of `source`, the list's path or URL.
    Raises InputError: the file is empty, or a list without entries or without the column `path`, with more than ten
    million entries, or with one longer than any path.
    """
    head = stream.read(_HEAD_BYTES)
    if not head:
        raise InputError(f"The input {escape(source)!r} is empty (0 bytes); choose another.", code="FK-INPUT-EMPTY")
    stream.seek(0)
    if head[:4] == b"PAR1":
        entries = _read_parquet(stream, source)
    elif is_text(head):
        entries = (os.fsdecode(line) for line in _read_lines(stream, source))
    else:
        return None
    unique: dict[str, None] = {}
    for entry in entries:
        if entry.strip():
            unique[_resolve(entry.rstrip("\r"), source)] = None
        if len(unique) > _MAX_ENTRIES:
            raise _make_too_long_error(source)
    paths = list(unique)
    if not paths:
        message = f"The list {escape(source)!r} has no entries; write one path on each line."
        raise InputError(message, code="FK-LIST-EMPTY")
    if head[:4] != b"PAR1" and not any(is_url(path) or os.path.exists(path) for path in paths[:_CHECKED]):
        raise InputError(
            f"The input {escape(source)!r} is text, and none of its lines names an existing file; relative paths are "
            f"resolved against {escape(posixpath.dirname(source))!r}.",
            code="FK-LIST-WITHOUT-FILES",
        )
    return paths


def _read_lines(stream: Any, source: str) -> Iterator[bytes]:
    """Yield lines; a line above the limit is an error before it is read as a whole."""
    rest = stream.read(3).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from (_check_entry(line, source) for line in lines)
        _check_entry(rest, source)
    yield rest


def _check_entry(entry: bytes, source: str) -> bytes:
    if len(entry) > _MAX_LINE:
        message = f"An entry of the list {escape(source)!r} is longer than any path; check that it is a list of files."
        raise InputError(message, code="FK-LIST-ENTRY-TOO-LONG")
    return entry


def _read_parquet(stream: Any, source: str) -> Iterator[str]:
    table = pq.ParquetFile(stream)
    if "path" not in table.schema_arrow.names:
        hint = did_you_mean("path", table.schema_arrow.names)
        raise InputError(f"The list {escape(source)!r} has no column 'path'.{hint}", code="FK-LIST-NO-PATH-COLUMN")
    if table.metadata.num_rows > _MAX_ENTRIES:
        raise _make_too_long_error(source)
    for batch in table.iter_batches(columns=["path"]):
        for value in batch.column(0).to_pylist():
            if not isinstance(value, str | bytes | None):
                message = f"The column 'path' of the list {escape(source)!r} is no text; write paths or URLs into it."
                raise InputError(message, code="FK-LIST-NO-PATH-COLUMN")
            if value is not None:
                yield os.fsdecode(_check_entry(os.fsencode(value), source))


def _make_too_long_error(source: str) -> InputError:
    message = f"The list {escape(source)!r} has more than {_MAX_ENTRIES:,} entries; split it into several runs."
    return InputError(message, code="FK-LIST-TOO-LONG")


def _resolve(entry: str, source: str) -> str:
    if is_url(entry):
        return entry
    if is_url(source):
        return f"{posixpath.dirname(source)}/{entry}"
    return os.path.normpath(os.path.join(os.path.dirname(source), entry))
