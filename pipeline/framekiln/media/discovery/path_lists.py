"""Lists of files as input: text, CSV or Parquet, distinguished from media by content."""

# Names stay strings as the system gave them, and pathlib would not keep them so.
# ruff: noqa: PTH110, PTH118, PTH120
import csv
import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from urllib.parse import urljoin

import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.contract.errors import InputError, did_you_mean
from framekiln.contract.store_url import below, split_place
from framekiln.media.file_types import is_text
from framekiln.media.media_ids import escape, is_url, is_web

_HEAD_BYTES = 1 << 16  # bytes examined to distinguish text from media
_BLOCK = 1 << 20  # bytes of one read
_MAX_LINE = 1 << 16  # bytes: Linux accepts paths of 4,096, object stores keys of 1,024
_MAX_ENTRIES = 10_000_000  # 9 GB of memory in the driver; more need several runs
_CHECKED = 1000  # first lines; at least one must name an existing file, or the text is no list
_COLUMNS = ("path", "url", "URL")  # the last two as in LAION's tables
_PHOTOS_IN_LETTERS = (".pbm", ".pgm", ".ppm")
_FACTS = ("size", "mtime_ns")
ListedFacts = tuple[int, int]
"""Bytes, and time of the last change in nanoseconds since 1970."""


@dataclass(frozen=True)
class PathList:
    """The entries of a list in order, without duplicates: absolute paths and URLs, and known facts of some."""

    paths: list[str]
    facts: dict[str, ListedFacts] = field(default_factory=dict)


def read_path_list(stream: Any, source: str) -> PathList | None:
    """Return the entries of a list; None if the file is no list.

    Relative entries are resolved against the folder of `source`, the list's path or URL. Raises InputError: the file is
    empty, has no column of paths, no entry, or over ten million. Other reasons are an entry longer than any path, and a
    web server's list that names files elsewhere.
    """
    head = stream.read(_HEAD_BYTES)
    if not head:
        raise InputError(f"The input {escape(source)!r} is empty (0 bytes); choose another.", code="FK-INPUT-EMPTY")
    stream.seek(0)
    is_table = head[:4] == b"PAR1"
    if is_table:
        entries = _read_parquet(stream, source)
    elif is_text(head) and not source.lower().endswith(_PHOTOS_IN_LETTERS):
        lines = (os.fsdecode(line) for line in _read_lines(stream, source))
        column = _find_column(head)
        entries = ((line, None) for line in (lines if column is None else _read_csv(lines, source, *column)))
    else:
        return None
    result = _collect(entries, source)
    if not is_table and not any(is_url(path) or os.path.exists(path) for path in result.paths[:_CHECKED]):
        raise InputError(
            f"The input {escape(source)!r} is text, and none of its lines names an existing file; relative paths are "
            f"resolved against {escape(posixpath.dirname(source))!r}.",
            code="FK-LIST-WITHOUT-FILES",
        )
    return result


def _collect(entries: Iterator[tuple[str, ListedFacts | None]], source: str) -> PathList:
    unique: dict[str, None] = {}
    facts: dict[str, ListedFacts] = {}
    for entry, fact in entries:
        if entry.strip():
            path = _resolve(entry.rstrip("\r"), source)
            unique[path] = None
            if fact is not None:
                facts[path] = fact
        if len(unique) > _MAX_ENTRIES:
            raise _make_too_long_error(source)
    if not unique:
        message = f"The list {escape(source)!r} has no entries; write one path on each line."
        raise InputError(message, code="FK-LIST-EMPTY")
    return PathList(list(unique), facts)


def _find_column(head: bytes) -> tuple[int, str] | None:
    """Return the position of the column of paths, and the separator; None for text without a header."""
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    divider = "\t" if "\t" in first else ","
    names = [name.strip(' "') for name in first.split(divider)]
    return next(((names.index(name), divider) for name in _COLUMNS if name in names), None)


def _read_csv(lines: Iterator[str], source: str, place: int, divider: str) -> Iterator[str]:
    try:
        for number, row in enumerate(csv.reader((f"{line}\n" for line in lines), delimiter=divider)):
            if number and len(row) > place:
                yield row[place]
    except csv.Error as error:
        message = f"The list {escape(source)!r} is no CSV ({error}); write it again, or one path on each line."
        raise InputError(message, code="FK-LIST-NO-PATH-COLUMN") from error


def _read_lines(stream: Any, source: str) -> Iterator[bytes]:
    """Yield lines; an overlong line raises before it is read completely."""
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


def _read_parquet(stream: Any, source: str) -> Iterator[tuple[str, ListedFacts | None]]:
    table = pq.ParquetFile(stream)
    names = table.schema_arrow.names
    column = next((name for name in _COLUMNS if name in names), None)
    if column is None:
        message = f"The list {escape(source)!r} has no column 'path' or 'url'.{did_you_mean('path', names)}"
        raise InputError(message, code="FK-LIST-NO-PATH-COLUMN")
    if table.metadata.num_rows > _MAX_ENTRIES:
        raise _make_too_long_error(source)
    facts = _FACTS if set(_FACTS) <= set(names) else ()
    for batch in table.iter_batches(columns=[column, *facts]):
        known = zip(*(_read_numbers(batch[name]) for name in facts), strict=True) if facts else ()
        for value, fact in zip_longest(batch[column].to_pylist(), known):
            if not isinstance(value, str | bytes | None):
                message = f"The column {column!r} of the list {escape(source)!r} is no text; write paths or URLs in it."
                raise InputError(message, code="FK-LIST-NO-PATH-COLUMN")
            if value is not None:
                entry = os.fsdecode(_check_entry(os.fsencode(value), source))
                yield entry, None if fact is None or None in fact else fact


def _read_numbers(values: pa.Array) -> list[int | None]:
    """Return whole numbers from 0, and times as nanoseconds; None for other values."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ns"), safe=False).cast(pa.int64())
    if not pa.types.is_integer(values.type):
        return [None] * len(values)
    return [value if value is not None and 0 <= value < 1 << 63 else None for value in values.to_pylist()]


def _make_too_long_error(source: str) -> InputError:
    message = f"The list {escape(source)!r} has more than {_MAX_ENTRIES:,} entries; split it into several runs."
    return InputError(message, code="FK-LIST-TOO-LONG")


def _resolve(entry: str, source: str) -> str:
    if is_url(entry):
        if is_web(source) and not is_web(entry):
            message = f"The list {escape(source)!r} is on a web server and names {escape(entry)!r}, which only a list "
            raise InputError(f"{message}of your own may: download it, and check it.", code="FK-LIST-OF-OTHERS")
        return entry
    if is_web(source):
        return urljoin(source, entry)
    if is_url(source):
        return below(split_place(source)[0], entry)
    return os.path.normpath(os.path.join(os.path.dirname(source), entry))
