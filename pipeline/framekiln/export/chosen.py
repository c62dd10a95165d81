"""The frames that a request for an export chooses."""

from collections import defaultdict

import pyarrow as pa

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ConfigError
from framekiln.export.request import ExportRequest
from framekiln.export.splits import Chosen
from framekiln.output.object_store import Store
from framekiln.selection.request import SelectionRequest
from framekiln.selection.selection import read_selection, select


def read_chosen(store: Store, request: ExportRequest) -> Chosen:
    """Return the chosen frames of each file. Raises ConfigError: there are none, or the choice is wrong."""
    return by_file(read_rows(store, request))


def read_rows(store: Store, request: ExportRequest) -> pa.Table:
    """Return `media_id` and `frame_index` of the chosen frames, in the order of their choice.

    Raises ConfigError: there are none, or the choice is wrong.
    """
    name = request.selection
    chosen = select(store, SelectionRequest(where=request.where)) if name is None else read_selection(store, name)
    if not len(chosen):
        message = "No frame is chosen, so there is nothing to export; widen the choice."
        raise ConfigError(message, code="FK-EXPORT-EMPTY")
    return chosen.rows


def by_file(rows: pa.Table) -> Chosen:
    """Return the frames of each file."""
    found = defaultdict[str, set[int]](set)
    for media_id, frame_index in zip(*(rows[key].to_pylist() for key in KEYS), strict=True):
        found[media_id].add(frame_index)
    return {media_id: frozenset(indices) for media_id, indices in found.items()}
