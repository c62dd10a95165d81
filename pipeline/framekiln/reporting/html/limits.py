"""The page of a preview: frames at quantiles of each number and around conditions' limits, to choose by looking.

Frames just below and just above show whether 200 px of sharpness are too few; a table does not.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS, SOURCE, describe
from framekiln.contract.output_names import FRAMES, PREVIEW
from framekiln.output.object_store import Store
from framekiln.planning.expression import find_limits
from framekiln.planning.plan import Plan
from framekiln.reporting.html.gallery.findings import FIRST_S, MOST_DECODED
from framekiln.reporting.html.gallery.thumbnails import image_store, thumbnails
from framekiln.reporting.kit.histograms import COUNTERS
from framekiln.reporting.kit.pages import render_page
from framekiln.reporting.kit.texts import number
from framekiln.reporting.table_rows import find_table, is_number, sample

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)  # a few in a hundred frames are blurred or noisy
NEAREST = 4  # frames on each side of a limit: both sides fill a row of a screen


def write_limits(store: Store, plan: Plan) -> str:
    """Write the page over the tables of a plan's run, and return its URL. Raises DamagedError: a table is damaged."""
    limits: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))  # steps by column and limit
    for step in plan.steps:
        for name, value in find_limits(step.condition.where.text) if step.condition.where else ():
            limits[name][value].append(step.name)
    added = [item for step in plan.first for item in step.stage.outputs if item.name not in COUNTERS]
    columns = [item for item in added if is_number(item.type)]
    columns += [item for item in SOURCE if item.name in limits and is_number(item.type)]
    names = [*KEYS, "media_type", "time_s", *dict.fromkeys(item.name for item in columns)]
    rows, each = sample(store, find_table(store, FRAMES), names)
    sheets = [_make_sheet(item, rows, limits.get(item.name, {})) for item in columns] if len(rows) else []
    sheets = [sheet for sheet in sheets if sheet["limits"] or sheet["spread"]]
    sheets.sort(key=lambda sheet: not sheet["limits"])  # what was asked for comes first
    sides = [side for sheet in sheets for limit in sheet["limits"] for side in limit["sides"].values()]
    near = {frame["key"] for frames in sides for frame in frames}
    keys = near | {frame["key"] for sheet in sheets for frame in sheet["spread"]}
    images = thumbnails(store, sorted(keys), plan.decode.config)
    middles = thumbnails(store, sorted(near), plan.decode.config, middle=True)
    images |= {(f"{name}/", index): image for (name, index), image in middles.items()}  # ids that no file has
    values = {"sheets": sheets, "rows": len(rows), "is_sample": each > 1, "first_s": FIRST_S}
    store.write(PREVIEW, render_page("limits.html", values | image_store(images)).encode("utf-8", "replace"))
    return store.url(PREVIEW)


def _make_sheet(item: pa.Field, rows: pa.Table, limits: Mapping[float, Sequence[str]]) -> dict[str, Any]:
    """Return a column of numbers with frames at its quantiles and beside its limits, ascending."""
    (about,) = describe(pa.schema([item]))
    kind = item.type if pa.types.is_floating(item.type) else pa.float64()  # float32 as DuckDB compares it
    rows = rows.select([*KEYS, "media_type", "time_s"]).append_column("value", rows[item.name].cast(kind, safe=False))
    known = rows.filter(pc.is_finite(rows["value"])).sort_by("value")
    late = pc.or_kleene(pc.greater_equal(known["frame_index"], MOST_DECODED), pc.greater(known["time_s"], FIRST_S))
    near = known.filter(pc.invert(pc.fill_null(late, False)))  # only frames near the starts of their files can be shown
    values, ordered = near["value"].to_numpy(), known["value"].to_numpy()
    quantiles: dict[int, list[str]] = defaultdict(list)  # one frame may be at several
    for part in QUANTILES if len(near) else ():
        place = np.abs(values - np.quantile(ordered, part, method="nearest")).argmin()
        quantiles[int(place)].append(f"{100 * part:.0f} %")

    def show(places: Sequence[int], notes: Sequence[str]) -> list[dict[str, Any]]:
        frames = near.take(pa.array(places, pa.int64())).to_pylist()
        for frame, note in zip(frames, notes, strict=True):
            text = f"{number(float(frame['value']))} {about['unit']}".rstrip()
            frame |= {"value": text, "about": note, "key": (frame["media_id"], frame["frame_index"])}
        return frames

    shown_limits = []
    for value in sorted(limits):
        first, below = int(np.searchsorted(values, value)), int(np.searchsorted(ordered, value))
        sides = {"below": range(first)[::-1], "at or above": range(first, len(near))}
        nearest = {side: _choose_nearest(near["media_id"], places) for side, places in sides.items()}
        frames = {side: show(places, [""] * len(places)) for side, places in nearest.items()}
        counts = {"below": below, "above": len(known) - below}
        shown_limits.append({"value": value, "steps": limits[value], **counts, "sides": frames})
    spread = show(list(quantiles), [", ".join(parts) for parts in quantiles.values()])
    return {**about, "nulls": len(rows) - len(known), "spread": spread, "limits": shown_limits}


def _choose_nearest(media: pa.ChunkedArray, places: Sequence[int]) -> list[int]:
    """Return the first of these positions, from different files if possible, in ascending order."""
    files: dict[str, int] = {}
    for place in places:
        files.setdefault(media[place].as_py(), place)
        if len(files) == NEAREST:
            break
    return sorted(list(dict.fromkeys([*files.values(), *places[:NEAREST]]))[:NEAREST])
