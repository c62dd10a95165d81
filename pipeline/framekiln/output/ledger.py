"""Finished parts: a killed run resumes from a listing of them and repeats only work in progress.

A *unit* is a group of files decoded together. The order of its rows never changes, so a *part*, one step's result for
rows `start` to `stop` of a unit, is named by these numbers alone. A step is done with a unit when its parts tile all
rows, wherever packets were cut. The decoder's parts end with an empty one at the number of rows.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from framekiln.contract.columns import KEYS, SOURCE
from framekiln.contract.output_names import COLUMNS
from framekiln.contract.packet import RowSpan
from framekiln.output.object_store import Store

ERRORS_SUFFIX, RETRY_SUFFIX = ".errors.parquet", ".again.parquet"
MARKS = pa.schema([SOURCE.field(name) for name in KEYS])  # rows to retry
_PART = re.compile(r"(?P<unit>[0-9a-f]+)\.(?P<start>\d+)-(?P<stop>\d+)\.parquet")


@dataclass(frozen=True, order=True)
class Part:
    """One step's result for consecutive rows of a unit."""

    unit: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.unit}.{self.start:08d}-{self.stop:08d}.parquet"

    @property
    def errors_name(self) -> str:
        return f"{self.name.removesuffix('.parquet')}{ERRORS_SUFFIX}"

    @property
    def retry_name(self) -> str:
        """Return the name of the file that marks rows to compute again; while it exists, the part counts as missing."""
        return f"{self.name.removesuffix('.parquet')}{RETRY_SUFFIX}"


def tiling(spans: Iterable[RowSpan], total: int) -> list[RowSpan] | None:
    """Return spans that cover 0 to `total` end to end, or None.

    Earlier runs with other packet sizes may have left overlapping spans.
    """
    by_start: dict[int, list[int]] = defaultdict(list)
    for start, stop in spans:
        if start < stop:
            by_start[start].append(stop)
    reached: dict[int, RowSpan | None] = {0: None}
    for start in sorted(by_start):
        if start in reached:
            for stop in by_start[start]:
                reached.setdefault(stop, (start, stop))
    if total not in reached:
        return None
    path: list[RowSpan] = []
    while (span := reached[total]) is not None:
        path.append(span)
        total = span[0]
    return path[::-1]


class Ledger:
    """The parts in an output's `columns/`, listed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spans: dict[str, dict[str, list[RowSpan]]] = {}

    def spans(self, folder: str) -> dict[str, list[RowSpan]]:
        """Return the spans of a step's parts, by unit."""
        if folder not in self._spans:
            spans: dict[str, list[RowSpan]] = defaultdict(list)
            names = self._store.names(f"{COLUMNS}/{folder}")
            marked = {name.removesuffix(RETRY_SUFFIX) for name in names if name.endswith(RETRY_SUFFIX)}
            for name in names:
                if (match := _PART.fullmatch(name)) and name.removesuffix(".parquet") not in marked:
                    spans[match["unit"]].append((int(match["start"]), int(match["stop"])))
            self._spans[folder] = dict(spans)
        return self._spans[folder]

    def total(self, decode: str, unit: str) -> int | None:
        """Return the number of rows of a unit; None until it has been decoded to its end.

        If a segment of a video could not be opened, an end of 0 is there. Then it has no rows, unless parts tile it to
        another end.
        """
        spans = self.spans(decode).get(unit, ())
        ends = [start for start, stop in spans if start == stop]
        is_whole = 0 not in ends or tiling(spans, max(ends)) is not None
        return max(ends, default=None) if is_whole else 0

    def parts(self, folder: str, decode: str, unit: str) -> list[Part] | None:
        """Return the parts with all of a step's rows of a unit, in order; None if some are missing."""
        total = self.total(decode, unit)
        path = None if total is None else tiling(self.spans(folder).get(unit, ()), total)
        return None if path is None else [Part(unit, *span) for span in path]

    def has(self, folders: Sequence[str], unit: str) -> bool:
        """Return whether all steps are done with a unit; the decoder's folder comes first."""
        return all(self.parts(folder, folders[0], unit) is not None for folder in folders)

    def common(self, folders: Iterable[str], unit: str) -> frozenset[RowSpan]:
        """Return the spans for which every step has a part."""
        return frozenset[RowSpan].intersection(*(frozenset(self.spans(folder).get(unit, ())) for folder in folders))
