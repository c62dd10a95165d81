"""Tables of files from earlier runs, reused for a file with the same inputs.

If a condition becomes wider, a step that follows objects through videos computes only the videos with other rows. A
video is not computed again if another file of its unit changed or went. Each table file stores in its metadata a digest
of each media file's inputs.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.errors import DamagedError
from framekiln.contract.stage import Scope
from framekiln.output.object_store import Store
from framekiln.planning.step import Step
from framekiln.runtime.second_pass.second_pass import UnitRows
from framekiln.runtime.stage_caller import CallData

INPUTS = b"framekiln.inputs"
"""Metadata key of a Parquet file for the digests of each media file's inputs, by media_id."""


def list_earlier(step: Step, *units: UnitRows) -> list[str]:
    """Return the names of a unit's table files that runs with other conditions or other files may have left."""
    names = [units[0].tag(folder.rpartition("-")[2]) for folder in step.others]
    if step.stage.scope is Scope.MEDIA:
        names += [replace(units[0], unit=name, media=None).tag(step.fingerprint) for name in units[0].origins]
    return names


def read_earlier(
    store: Store, step: Step, units: tuple[UnitRows, ...]
) -> dict[tuple[str, str], Mapping[str, pa.Table]]:
    """Return each media file's tables in these files, by media_id and the digest of its inputs."""
    found: dict[tuple[str, str], Mapping[str, pa.Table]] = {}
    for name in list_earlier(step, *units):
        with suppress(DamagedError, FileNotFoundError):
            whole = {
                table: store.read_table(f"{table}/{name}", expected=declared.schema)
                for table, declared in step.stage.tables.items()
            }
            digests = json.loads((next(iter(whole.values())).schema.metadata or {}).get(INPUTS, b"{}"))
            for media_id, digest in digests.items():
                own = {key: table.filter(pc.equal(table["media_id"], media_id)) for key, table in whole.items()}
                found[media_id, digest] = own
    return found


def digest_call(step: Step, data: CallData) -> str:
    """Return a digest of everything that decides a call's result: the step, its rows, and rows of tables."""
    found = hashlib.sha256(step.alike.encode())
    tables = [each for extra in data.extra if isinstance(extra, Mapping) for _, each in sorted(extra.items())]
    for table in (data.rows, *tables):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        found.update(sink.getvalue())
    return found.hexdigest()[:16]


def with_digests(table: pa.Table, digests: Mapping[str, str]) -> pa.Table:
    """Return a table to write, with the digests of its media files' inputs."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), INPUTS: json.dumps(digests)})
