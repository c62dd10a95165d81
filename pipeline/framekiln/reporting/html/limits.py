"""The page of a preview: frames at quantiles of each number and around the limits in conditions, to choose by looking.

Whether 200 px of sharpness are too few is seen on the frames just below and just above, and not in a table.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS, SOURCE, describe
from framekiln.contract.output_names import FRAMES, PREVIEW
from framekiln.output.object_store import Store
from framekiln.planning.expression import find_limits
from framekiln.planning.plan import Plan
from framekiln.reporting.html.gallery.findings import FIRST_S, MOST_DECODED, FrameKey
from framekiln.reporting.html.gallery.thumbnails import thumbnails
from framekiln.reporting.kit.histograms import COUNTERS
from framekiln.reporting.kit.pages import render_page
from framekiln.reporting.kit.texts import number
from framekiln.reporting.table_rows import find_table, is_number, sample

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)  # blurred and noisy frames are a few in a hundred
NEAREST = 4  # frames on each side of a limit: both sides fill a row of a screen


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A frame and its value."""

    media_id: str
    frame_index: int
    media_type: str
    value: str  # with its unit
    about: str = ""  # its quantiles

    @property
    def key(self) -> FrameKey:
        """The media_id and frame_index."""
        return self.media_id, self.frame_index


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A number that conditions compare a column with."""

    value: float
    steps: Sequence[str]  # that have the condition
    below: int  # rows
    above: int  # rows at it or above
    sides: Mapping[str, Sequence[Shown]]  # the nearest frames


@dataclass(frozen=True, kw_only=True)
class ColumnSheet:
    """A column of numbers with frames."""

    name: str
    unit: str
    description: str
    nulls: int  # rows without a finite value
    spread: Sequence[Shown]  # at the quantiles
    limits: Sequence[Limit]

    @property
    def shown(self) -> list[Shown]:
        """All frames of the column."""
        return [*self.spread, *(frame for limit in self.limits for side in limit.sides.values() for frame in side)]


def write_limits(store: Store, plan: Plan) -> str:
    """Write the page over the tables of a plan's run, and return its URL. Raises DamagedError: a table is damaged."""
    limits = _list_limits(plan)
    added = [item for step in plan.first for item in step.stage.outputs if item.name not in COUNTERS]
    columns = [item for item in added if is_number(item.type)]
    columns += [item for item in SOURCE if item.name in limits and is_number(item.type)]
    rows, each = sample(
        store, find_table(store, FRAMES), [*KEYS, "media_type", "time_s", *dict.fromkeys(item.name for item in columns)]
    )
    sheets = [_make_sheet(item, rows, limits.get(item.name, {})) for item in columns] if len(rows) else []
    sheets = [sheet for sheet in sheets if sheet.limits or sheet.spread]
    sheets.sort(key=lambda sheet: not sheet.limits)  # what was asked for comes first
    keys = {frame.key for sheet in sheets for frame in sheet.shown}
    images = thumbnails(store, sorted(keys), vars(plan.decode.config))
    values = {
        "sheets": sheets,
        "rows": len(rows),
        "is_sample": each > 1,
        "first_s": FIRST_S,
        "images": images,
        "ids": {key: f"p{place}" for place, key in enumerate(images)},
    }
    store.write(PREVIEW, render_page("limits.html", values).encode("utf-8", "replace"))
    return store.url(PREVIEW)


def _list_limits(plan: Plan) -> dict[str, dict[float, list[str]]]:
    """Return the steps with each limit, by column and limit."""
    limits: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for step in plan.steps:
        for name, value in find_limits(step.condition.where.text) if step.condition.where else ():
            limits[name][value].append(step.name)
    return limits


def _make_sheet(item: pa.Field, rows: pa.Table, limits: Mapping[float, Sequence[str]]) -> ColumnSheet:
    (about,) = describe(pa.schema([item]))
    column = _Column(rows, item.name, about["unit"])
    return ColumnSheet(
        name=item.name,
        unit=about["unit"],
        description=about["description"],
        nulls=len(rows) - len(column.ordered),
        spread=column.show_quantiles(),
        limits=[column.show_limit(value, steps) for value, steps in sorted(limits.items())],
    )


class _Column:
    """The values of a column, and the rows that can be shown: those near the starts of their files, by value."""

    def __init__(self, rows: pa.Table, name: str, unit: str) -> None:
        values = rows[name]
        if not pa.types.is_floating(values.type):
            values = values.cast(pa.float64(), safe=False)
        self._rows, self._unit = rows, unit
        self._values: NDArray[Any] = values.to_numpy()  # float32 as DuckDB compares it
        known = np.isfinite(self._values)
        self.ordered = np.sort(self._values[known])
        times = rows["time_s"].to_numpy()
        early = (rows["frame_index"].to_numpy() < MOST_DECODED) & ~(times > FIRST_S)
        places = np.flatnonzero(known & early)
        self._places = places[np.argsort(self._values[places], kind="stable")]

    def show_quantiles(self) -> list[Shown]:
        """Return the frame at each quantile; one that is at several says all."""
        found: dict[int, list[str]] = defaultdict(list)
        for part in QUANTILES if len(self._places) else ():
            value = np.quantile(self.ordered, part, method="nearest")
            place = self._places[np.abs(self._values[self._places] - value).argmin()]
            found[int(place)].append(f"{100 * part:.0f} %")
        return [self._show(place, ", ".join(parts)) for place, parts in found.items()]

    def show_limit(self, value: float, steps: Sequence[str]) -> Limit:
        """Return a limit with the nearest frames on both sides."""
        under = self._values[self._places] < value
        below = int((self.ordered < value).sum())
        return Limit(
            value=value,
            steps=steps,
            below=below,
            above=len(self.ordered) - below,
            sides={
                "below": self._find_nearest(self._places[under][::-1]),
                "at or above": self._find_nearest(self._places[~under]),
            },
        )

    def _find_nearest(self, places: NDArray[np.int64]) -> list[Shown]:
        """Return the first of these places by value; of different files while there are any."""
        files: dict[str, int] = {}
        for place in places.tolist():
            files.setdefault(self._rows["media_id"][place].as_py(), place)
            if len(files) == NEAREST:
                break
        others = [place for place in places[:NEAREST].tolist() if place not in files.values()]
        chosen = [*files.values(), *others][:NEAREST]
        return [self._show(place) for place in sorted(chosen, key=self._values.__getitem__)]

    def _show(self, place: int, about: str = "") -> Shown:
        row = self._rows.select([*KEYS, "media_type"]).slice(place, 1).to_pylist()[0]
        return Shown(**row, value=f"{number(float(self._values[place]))} {self._unit}".rstrip(), about=about)
