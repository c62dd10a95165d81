"""Units of files as a run forms and stores them."""

from __future__ import annotations

from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.object_store import Store
from framekiln.output.unit_table import divide_into_units, sort_units, write_units


def ensure_units(store: Store, listing: list[MediaFile], selected: list[MediaFile], slots: int) -> list[Unit]:
    """Return the units of `divide_into_units` in order, after writing the new ones."""
    known, fresh = divide_into_units(store, listing, selected, slots)
    write_units(store, fresh, known)
    return sort_units(known + fresh)
