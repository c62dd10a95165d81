"""Figures of a collection from an output of part of it: rows of its files, seconds of packets, bytes of a row.

Videos differ in length, so their rows follow from bytes: rows a megabyte of files of the same kind. A web server's have
unknown sizes, and count as the mean measured one. A photo gives one row. A bootstrap draws files, or packets, again
with replacement; the spread of the results is the interval. Index 0 of an array of draws is the estimate itself.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.output_names import COLUMNS, FRAMES, IMAGES
from framekiln.contract.row_errors import DECODE
from framekiln.contract.words import counted
from framekiln.lab.predict.pace import QUANTILES, Draws, Interval
from framekiln.lab.predict.source_run import SourceStep
from framekiln.media.discovery.spread import kind_of
from framekiln.media.files import MediaFile
from framekiln.media.media_ids import is_web
from framekiln.output.kept_tables import MOST_FILES, spread
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units, unit_of
from framekiln.planning.plan import Plan
from framekiln.planning.step import is_file_column
from framekiln.profiling.advice import OTHERS
from framekiln.runtime.run.record import read_earlier

DRAWS = 200  # draws; 10 of them lie beyond a 5 % quantile
MOST_NAMED = 5  # steps; more are only counted
FEW = 5  # files or packets; an interval from fewer says little
FEW_SPREAD = 2.0  # with fewer packets, the interval reaches at least from half to twice the time: an assumption
OTHER_SIZE = 1.5  # factor of the mean bytes of photos from which their seconds are said to be of others
FILM_SPREAD = 1.1  # deviation of the logarithm of rows a megabyte, among the tests' 11 MP4 videos: a factor of 3


@dataclass(frozen=True, kw_only=True)
class MeasuredFiles:
    """Files with rows in an output."""

    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # bytes and rows by media_id
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by unit, the kind of file behind each row


def read_measured(store: Store, every_nth: int = 1) -> MeasuredFiles:
    """Read the number of rows of files, at every n-th frame, from some of the tables in `frames/`."""
    record = (read_earlier(store) or {}).get(DECODE) or {}
    thinner = record.get("every_nth", every_nth) / every_nth
    members = {unit.name: unit.media for unit in read_units(store)}
    files: dict[str, tuple[int, int]] = {}
    units: dict[str, tuple[str, ...]] = {}
    for name in spread(store.names(FRAMES), MOST_FILES):
        unit = unit_of(name)
        if unit is None or unit not in members:
            continue
        ids = store.read_table(f"{FRAMES}/{name}", ["media_id"])["media_id"].to_pylist()
        rows = {name: math.ceil(thinner * number) if number > 1 else number for name, number in Counter(ids).items()}
        files |= {media.media_id: (media.size, rows.get(media.media_id, 0)) for media in members[unit]}
        units[unit] = tuple(map(kind_of, ids))
    return MeasuredFiles(files=files, units=units)


def estimate_rows(files: Sequence[MediaFile], measured: MeasuredFiles) -> tuple[dict[str, Draws], list[str]]:
    """Return the rows of files by kind, and sentences on the estimate's gaps.

    Measured files have their own rows, without an interval.
    """
    chance = np.random.default_rng(0)
    sizes: dict[str, list[int]] = defaultdict(list)
    unsized = Counter[str]()
    rows: dict[str, Draws] = {}
    for media in files:
        kind, known = kind_of(media.media_id), measured.files.get(media.media_id)
        total = rows.setdefault(kind, np.zeros(1 + DRAWS))
        if known is not None and known[0] == media.size:
            total += known[1]
        elif media.size or not is_web(media.path):
            sizes[kind].append(media.size)
        else:
            unsized[kind] += 1
    notes = list[str]()
    for kind in sorted(sizes.keys() | unsized.keys()):
        found = [facts for name, facts in measured.files.items() if kind_of(name) == kind]
        seen = np.array(found, np.int64).reshape(-1, 2)
        left, unknown = sizes[kind], unsized[kind]
        rows[kind] += _draw_rows(seen, left, unknown, chance)
        notes += [f"{kind or 'files without an ending'}: {doubt}" for doubt in _doubt_rows(seen, left, unknown)]
    return rows, notes


def _doubt_rows(seen: NDArray[np.int64], left: Sequence[int], unsized: int) -> Iterator[str]:
    """Yield sentences on the rows of one kind of files, and on their seconds."""
    if not len(seen):
        yield f"{len(left) + unsized:,} files, none measured, count as a row each"
    elif seen[:, 1].max() > 1:
        if len(seen) < FEW:
            yield f"rows rest on {counted(len(seen), 'video')}, so their interval says little"
        if unsized:
            mean = f"{seen[:, 1].mean():,.0f} rows each, the mean of {counted(len(seen), 'measured file')}"
            yield f"{unsized:,} files of unknown size count as {mean}"
    else:
        here, there = (np.mean([size for size in sizes if size] or [0]) for sizes in (left, seen[:, 0]))
        if here and there and not 1 / OTHER_SIZE < here / there < OTHER_SIZE:
            yield (
                f"the files have {here / 1e6:.2g} MB in the mean, and the measured ones {there / 1e6:.2g}: seconds and "
                "sizes of a row are those of the measured ones"
            )


def _draw_rows(seen: NDArray[np.int64], left: Sequence[int], unsized: int, chance: np.random.Generator) -> Draws:
    """Return the rows of files with these bytes, and of a number of files of unknown size."""
    if not len(seen):
        return np.full(1 + DRAWS, float(len(left) + unsized))
    sized = seen[:, 1] * (seen[:, 0] > 0)
    drawn = _draw_sums(np.column_stack([seen, sized]).astype(np.float64), chance)
    if seen[:, 1].max() > 1 and len(seen) == 1:  # drawing one video again says nothing of others
        drawn[1:, 1:] *= np.exp(FILM_SPREAD * chance.standard_normal(DRAWS))[:, None]
    a_file = drawn[:, 1] / len(seen)
    if seen[:, 1].max() <= 1 or not sized.any():  # photos: the readable share
        return a_file * (len(left) + unsized)
    return drawn[:, 2] / np.maximum(drawn[:, 0], 1) * sum(left) + a_file * unsized


def seconds_a_row(step: SourceStep, measured: MeasuredFiles) -> dict[str, Draws]:
    """Return the seconds of a row by the kind of its file, with the key "" for any row.

    Rows are those of the first pass, even for second-pass steps.
    """
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    packets = step.packets
    everything = float(sum(map(len, measured.units.values())))
    for unit, start, rows, spent in zip(packets.units, packets.starts, packets.rows, packets.seconds, strict=True):
        if unit.endswith(".parquet"):
            name = unit_of(unit)
            read = everything if name is None else float(len(measured.units.get(name, ())))
            seconds[""].append((spent, read))
            continue
        seconds[""].append((spent, float(rows)))
        kinds = measured.units.get(unit, ())
        if rows and start < len(kinds):
            seconds[kinds[start]].append((spent, float(rows)))
    chance = np.random.default_rng(1)
    known = {kind: pairs for kind, pairs in seconds.items() if sum(rows for _, rows in pairs)}
    sums = {kind: _draw_sums(np.array(pairs), chance) for kind, pairs in known.items()}
    return {kind: spent_rows[:, 0] / np.maximum(spent_rows[:, 1], 1) for kind, spent_rows in sums.items()}


def time_spread(step: SourceStep) -> Interval:
    """Return plausible factors of a step's measured time on one core, from the spread of its packets."""
    draws = seconds_a_row(step, MeasuredFiles()).get("")
    low, high = (1.0, 1.0) if draws is None or draws[0] <= 0 else np.quantile(draws[1:], QUANTILES) / draws[0]
    least = FEW_SPREAD if len(step.packets.rows) < FEW else 1.0
    return Interval(central=1.0, low=float(min(low, 1 / least)), high=float(max(high, least)) * step.cores)


def measuring_notes(others: float, steps: Collection[SourceStep]) -> list[str]:
    """Return sentences on other load during a run, as a share of the cores, on processes and on few packets."""
    cores = max((step.cores for step in steps), default=1.0)
    wide = (
        f"The run had few processes for its cores, so a call could use {cores:g} of them: with a process on each core "
        "a row may take as many times as long; measure more files"
    )
    few = [step.name for step in steps if 0 < len(step.packets.rows) < FEW]
    named = ", ".join(few) if len(few) <= MOST_NAMED else f"{len(few)} steps"
    busy = f"Other programs took {others:.0%} of the machine's cores while the run was measured: alone it may be faster"
    little = f"{named}: fewer than {FEW} packets were measured, so their intervals say little"
    return [busy] * (others >= OTHERS) + [wide] * (cores > 1) + [little] * bool(few)


def _draw_sums(values: NDArray[np.float64], chance: np.random.Generator) -> NDArray[np.float64]:
    """Return the sums of n values (n d), and of n values drawn with replacement: 1 + DRAWS times d."""
    drawn = [values[chance.integers(len(values), size=len(values))].sum(0) for _ in range(DRAWS)]
    return np.array([values.sum(0), *drawn])


TABLES = "tables"
"""`frames/`, which repeats the columns of all steps."""


def bytes_a_row(plan: Plan, store: Store) -> dict[str, float]:
    """Return the output's bytes for each row of the first pass, by step: parts, images, own tables.

    Steps missing in the output are left out.
    """
    ledger = Ledger(store)

    def count(folder: str) -> int:
        return sum(stop - start for spans in ledger.spans(folder).values() for start, stop in spans)

    everything = count(plan.decode.folder)
    sizes: dict[str, tuple[int, int]] = {
        plan.decode.name: (store.size(f"{COLUMNS}/{plan.decode.folder}"), everything),
        TABLES: (store.size(FRAMES), everything),
    }
    for step in plan.first:
        images = [item.name for item in step.stage.outputs if is_file_column(item)]
        folders = [f"{COLUMNS}/{step.folder}", *(f"{IMAGES}/{step.images(name)}" for name in images)]
        sizes[step.name] = sum(map(store.size, folders)), count(step.folder)
    for step in plan.second:
        sizes[step.name] = sum(map(store.size, step.stage.tables)), everything
    return {name: size / rows for name, (size, rows) in sizes.items() if rows}
