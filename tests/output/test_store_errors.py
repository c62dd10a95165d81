"""Errors of reading: what is damaged is told apart from a disk or a bucket that refuses."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from framekiln.contract.errors import DamagedError, GoneError, OutputError
from framekiln.output.object_store import Store
from framekiln.output.parquet import check_types, exact, optional
from framekiln.output.store_errors import read_errors
from tests.support.errors import fails
from tests.support.machine.permissions import permissions_count

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (OSError("Couldn't deserialize thrift"), DamagedError, "FK-OUTPUT-DAMAGED"),
        (pa.ArrowInvalid("no footer"), DamagedError, "FK-OUTPUT-DAMAGED"),
        (PermissionError(errno.EACCES, "denied"), DamagedError, "FK-OUTPUT-DAMAGED"),
        (OSError(errno.ELOOP, "loop"), DamagedError, "FK-OUTPUT-DAMAGED"),
        (OSError(errno.EIO, "broken disk"), OutputError, "FK-OUTPUT-UNREADABLE"),
        (OSError("AWS Error NETWORK_CONNECTION during GetObject"), OutputError, "FK-OUTPUT-UNREADABLE"),
        (OSError("google::cloud::Status(UNAVAILABLE: x)"), OutputError, "FK-OUTPUT-UNREADABLE"),
        (FileNotFoundError(errno.ENOENT, "gone"), GoneError, "FK-OUTPUT-GONE"),
    ],
)
def test_errors_of_reading_by_their_cause(error, kind, code):
    with pytest.raises(OutputError) as raised, read_errors("out", "frames/a"):
        raise error
    assert type(raised.value) is kind and raised.value.code == code


def test_types_are_checked_and_optional_columns_may_be_absent():
    check_types(SCHEMA, SCHEMA)
    check_types(SCHEMA.append(pa.field("c", pa.int8())), SCHEMA)
    check_types(SCHEMA.remove(1), optional(SCHEMA))
    for other, expected in ((SCHEMA.remove(1), SCHEMA), (pa.schema([("a", pa.int8())]), optional(SCHEMA))):
        with pytest.raises(pa.ArrowInvalid):
            check_types(other, expected)


def test_an_exact_schema_has_all_columns_and_no_other():
    check_types(SCHEMA, exact(SCHEMA))
    for other in (SCHEMA.remove(1), SCHEMA.append(pa.field("c", pa.int8()))):
        with pytest.raises(pa.ArrowInvalid):
            check_types(other, exact(SCHEMA))


def test_an_empty_folder_in_the_place_of_a_file_is_replaced_and_another_stays(tmp_path):
    store = Store(str(tmp_path))
    (tmp_path / "a").mkdir()
    store.write("a", b"content")
    assert store.read("a") == b"content"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("x")
    with fails("FK-OUTPUT-NOT-WRITABLE"):
        store.write("b", b"content")
    assert (tmp_path / "b" / "mine").exists()


def test_a_disk_that_refuses_to_fence_is_named(tmp_path):
    store = Store(str(tmp_path))
    store.of_run("ab12").begin()
    tmp_path.chmod(0o500)
    with permissions_count(), fails("FK-OUTPUT-NOT-WRITABLE"):
        store.fence("ab12")
    tmp_path.chmod(0o700)
    store.fence("ab12")
    assert not list(tmp_path.iterdir())
