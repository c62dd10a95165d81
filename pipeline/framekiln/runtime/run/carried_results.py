"""Results of unchanged files whose unit lost or changed other files.

A unit's rows never change their order, so a part belongs to the unit's original files. Unchanged files become a unit of
their own, which takes over the old unit's results; nothing is decoded or computed for it. The old unit keeps its parts,
since its files may come back.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import MEDIA_ID
from framekiln.contract.errors import DamagedError
from framekiln.contract.output_names import COLUMNS, FACTS
from framekiln.contract.row_errors import DECODE
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.contract.words import counted
from framekiln.media.units import Unit, surviving_unit
from framekiln.output.ledger import Ledger, Part
from framekiln.output.object_store import Store
from framekiln.output.unit_table import write_units
from framekiln.runtime.parts import Parts, read_unchosen


def carry_over(store: Store, units: Sequence[Unit], on_wait: Callable[[str], None]) -> bool:
    """Make a unit, with results, of the unchanged files of each unit with stale ones; return whether there was any.

    The units are written last: after an interruption the next run does it again.
    """
    stale = [unit for unit in units if unit.stale]
    if not stale:
        return False
    files = sum(len(unit.media) - len(unit.stale | unit.superseded) for unit in stale)
    on_wait(f"Results of {counted(files, 'file')} beside changed and removed ones are taken over.")
    ledger = Ledger(store)
    folders = _group_by_decoding(store)
    for folder in (name for names in folders.values() for name in names):
        ledger.spans(folder)  # listed once, before threads need it
    with ThreadPoolExecutor() as pool:  # a bucket takes 50 ms for each part
        write_units(store, list(pool.map(partial(_carry, store, ledger, folders), stale)))
    return True


def _group_by_decoding(store: Store) -> Mapping[str, list[str]]:
    """Return the steps' folders grouped by the decoder's folder of their rows, which is last in its group."""
    there = store.folders(COLUMNS)
    reads: dict[str, dict[str, str]] = {}
    for folder in there:
        with suppress(DamagedError, FileNotFoundError):
            reads[folder] = store.read_json(f"{FACTS}/{folder}.json").get("reads", {})
    found: dict[str, list[str]] = defaultdict(list)
    for folder in there:
        reached = folder
        while reached in reads and not reached.startswith(f"{DECODE}-"):
            steps = reads[reached]
            name = DECODE if DECODE in steps else next(iter(steps), "")
            reached = f"{name}-{steps.get(name, '')}"
        if reached in there:
            found[reached].append(folder)
    return {decode: [*(name for name in names if name != decode), decode] for decode, names in found.items()}


def _carry(store: Store, ledger: Ledger, folders: Mapping[str, Sequence[str]], unit: Unit) -> Unit:
    survivors = surviving_unit(unit)
    names = pa.array([media.media_id for media in survivors.media], pa.string())
    for decode, steps in folders.items():
        if (tiles := ledger.parts(decode, decode, unit.name)) is None:
            continue
        with suppress(DamagedError, FileNotFoundError):  # then its files are decoded again
            heritage = _Heritage(store, survivors.name, names, decode, tiles)
            for folder in steps:
                for span in sorted(ledger.spans(folder).get(unit.name, ())):
                    heritage.copy(folder, Part(unit.name, *span))
    return survivors


class _Heritage:
    """The rows of a unit that another unit takes over, with new numbers."""

    def __init__(self, store: Store, heir: str, names: pa.Array, decode: str, tiles: Sequence[Part]) -> None:
        """Find the rows of the files with these names. `tiles` are decoding's parts, in order."""
        self._store, self._heir, self._names = store, heir, names
        self._kept = np.zeros(tiles[-1].stop if tiles else 0, bool)
        self._lossy: set[Part] = set()  # parts with fewer rows than numbers: frames were lost
        self._late: list[pa.Table] = []  # failures of files without rows, for the part that ends the unit
        for tile in tiles:
            column = store.read_table(f"{COLUMNS}/{decode}/{tile.name}", [MEDIA_ID.name])[MEDIA_ID.name]
            own, stop = pc.is_in(column, names).to_numpy(), tile.start + len(column)
            self._kept[tile.start : stop] = own
            if stop < tile.stop:  # numbers of lost frames belong to the file before
                self._kept[stop : tile.stop] = self._kept[max(0, stop - 1)]
                self._lossy.add(tile)
        self._places = np.concatenate([[0], np.cumsum(self._kept)])  # new number of each row, and of the end

    def copy(self, folder: str, part: Part) -> None:
        """Write a part's content for these rows; a damaged part is left out and computed again."""
        heir = Part(self._heir, int(self._places[part.start]), int(self._places[part.stop]))
        with suppress(DamagedError, FileNotFoundError):
            table = self._store.read_table(f"{COLUMNS}/{folder}/{part.name}")
            if table.num_rows < part.stop - part.start and part not in self._lossy:
                return
            own = self._kept[part.start : part.stop][: table.num_rows]
            unchosen = read_unchosen(table.schema, table.num_rows)
            self._copy_failures(folder, part, heir)
            if own.any() or part.start == part.stop:
                columns = table.filter(pa.array(own))
                Parts(self._store).put(folder, heir, columns, (), None if unchosen is None else unchosen[own])

    def _copy_failures(self, folder: str, part: Part, heir: Part) -> None:
        path, is_end = f"{COLUMNS}/{folder}/{part.errors_name}", part.start == part.stop
        found = [self._store.read_table(path, expected=FAILURES)] if self._store.exists(path) else []
        found = [each for table in found if (each := table.filter(pc.is_in(table["media_id"], self._names))).num_rows]
        if heir.start == heir.stop and not is_end:
            self._late += found
        elif found := [*self._late * is_end, *found]:
            self._store.write_table(f"{COLUMNS}/{folder}/{heir.errors_name}", pa.concat_tables(found))
