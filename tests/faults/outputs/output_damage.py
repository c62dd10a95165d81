"""Damage to the files and folders of an output, by a random choice that a seed repeats."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.outputs.sample_output import remove

_FOREIGN = (b"", b"\0" * 64, b"{}", b"[]", b"null", b"PAR1", b'{"a": [1]}', b"\xff\xfe not text", b"x" * 5000)
_VALUES = (None, 0, -1, 1e308, "", "x", "\ud800", [], {}, [[]], [{}], True, "2300-01-01T00:00:00+00:00", {"x": None})
_KEPT = ("errors", "guests", "identity_summary", "units")
_LEASE = "run.lease-0123456789ab.json"


@dataclass
class Damage:
    """What was done to an output, and what a run cannot mend by itself."""

    done: list[str] = field(default_factory=list)
    obstacles: list[Path] = field(default_factory=list)  # to be removed, or allowed, by hand

    def clear(self) -> None:
        """Do what a message about an obstacle asks for."""
        for path in self.obstacles:
            remove(path)


def damaged(root: Path, rng: Random, most: int = 4) -> Damage:
    """Damage up to `most` entries of a folder."""
    damage = Damage()
    for _ in range(rng.choice((1, 1, 1, 2, most))):
        entries = sorted(path for path in root.rglob("*") if not path.is_symlink())
        files = [path for path in entries if path.is_file()]
        folders = [path for path in entries if path.is_dir()]
        if rng.random() < 0.1 and folders:
            _do(damage, root, rng.choice(folders), rng.choice(_FOLDER_WAYS), rng)
        elif files:
            place = rng.choice(sorted({path.parent for path in files}))  # each folder as often as any other
            path = rng.choice([path for path in files if path.parent == place])
            ways = [*_WAYS, *_KIND_WAYS]
            ways += [_json_value] * 4 * (path.suffix == ".json") + [_types, _flip_footer, _flip_dictionary] * 4 * (
                path.suffix == ".parquet"
            )
            _do(damage, root, path, rng.choice(ways), rng)
    return damage


def _do(damage: Damage, root: Path, path: Path, way: Callable[..., Any], rng: Random) -> None:
    with suppress(PermissionError):  # it was forbidden before
        if obstacle := way(path, rng, root):
            damage.obstacles.append(path if obstacle is True else obstacle)
    damage.done.append(f"{way.__name__.strip('_')} {path.relative_to(root)}")


# The content of a file


def _flip(path: Path, rng: Random, _: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 4, 16)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _flip_footer(path: Path, rng: Random, _: Path) -> None:
    """Flip a bit of a table's footer, or of the start of a page."""
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little") if data[-4:] == b"PAR1" else 0
    if 0 < length < len(data) - 12:
        low = rng.choice((len(data) - 8 - length, 4))
        data[rng.randrange(low, min(len(data), low + max(40, length)))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _flip_dictionary(path: Path, rng: Random, _: Path) -> None:
    """Flip bits of a dictionary of a table: its header, its sizes and its values."""
    with suppress(pa.ArrowException, OSError, ValueError):
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        starts = [one.dictionary_page_offset for one in columns if one.has_dictionary_page]
        data, start = bytearray(path.read_bytes()), rng.choice(starts or [4])
        for _ in range(rng.choice((1, 1, 3))):
            data[rng.randrange(start, min(len(data), start + 60))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def _cut(path: Path, rng: Random, _: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _empty(path: Path, _: Random, __: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path, rng: Random, _: Path) -> None:
    path.write_bytes(rng.choice(_FOREIGN))


def _other(path: Path, rng: Random, root: Path) -> None:
    """Replace a file by one of another folder: within a folder no reader could tell two files from each other."""
    others = [other for other in sorted(root.rglob("*")) if other.is_file() and other.parent != path.parent]
    if others:
        path.write_bytes(rng.choice(others).read_bytes())


def _json_value(path: Path, rng: Random, _: Path) -> None:
    """Give one value of a JSON file another type."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return
    node, key = {"": content}, ""
    while isinstance(node[key], dict | list) and node[key] and rng.random() < 0.8:
        node = node[key]
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
    if rng.random() < 0.2 and isinstance(node, dict) and key:
        del node[key]
    else:
        node[key] = rng.choice(_VALUES)
    path.write_text(json.dumps(content if content is not None and "" not in node else node.get("", content)))


def _types(path: Path, rng: Random, _: Path) -> None:
    """Write a table anew with a column of another type or name, or without it."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError):
        return
    if not table.num_columns:
        return
    place = rng.randrange(table.num_columns)
    name, kind = table.column_names[place], rng.choice((pa.int8(), pa.date32(), pa.null()))
    changed = {
        "drop": lambda: table.remove_column(place),
        "rename": lambda: table.rename_columns([f"{n}x" if n == name else n for n in table.column_names]),
        "other": lambda: table.set_column(place, name, pa.nulls(table.num_rows, kind)),
    }
    kept = path.parent.name in _KEPT  # tables that may lack columns, as earlier versions wrote fewer
    pq.write_table(changed["other" if kept else rng.choice(sorted(changed))](), path)


def _delete(path: Path, _: Random, __: Path) -> None:
    path.unlink()


def _stranger(path: Path, rng: Random, _: Path) -> Path:
    """Add a file with another name beside one; in the folders of tables it is foreign."""
    target = path.with_name(rng.choice((f".{path.name}", f"{path.name}~", f"copy of {path.name}", "Thumbs.db")))
    shutil.copyfile(path, target)
    return target


# The kind of an entry


def _folder_in_place(path: Path, rng: Random, _: Path) -> bool:
    path.unlink()
    path.mkdir()
    if rng.random() < 0.5:
        (path / "inside").write_text("x")
    return True


def _pipe_in_place(path: Path, _: Random, __: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path, rng: Random, root: Path) -> None:
    path.unlink()
    path.symlink_to(rng.choice([path.name, "nowhere", "/dev/null", str(root), ".."]))


def _forbidden(path: Path, rng: Random, _: Path) -> bool:
    path.chmod(rng.choice((0, stat.S_IWUSR, stat.S_IRUSR)))
    return False


def _leases(path: Path, rng: Random, root: Path) -> None:
    """Leave a lease of a run that has gone, or something like one."""
    values = {"run": "0123456789ab", "host": "h", "machine": rng.choice(("m", "", 3)), "pid": rng.choice((1, -1, "x"))}
    values |= {"born": rng.choice((0.0, None)), "since": "", "shard": rng.choice((None, [0, 2], [0], "x", 7))}
    values |= {
        "state": rng.choice(("left", "asking", "holding", 9)),
        "beat": 0,
        "over": rng.choice(([], ["b"], [1], 0)),
    }
    (root / _LEASE).write_text(rng.choice((json.dumps(values), "", "[]", "{}", "null")))


def _marks(path: Path, rng: Random, root: Path) -> None:
    """Leave marks of a retry that cannot be read, or a list of damaged files that names others."""
    parts = [part for part in sorted(root.glob("columns/*/*-*.parquet")) if part.name.count(".") == 2]
    if parts and rng.random() < 0.7:
        part = rng.choice(parts)
        part.with_name(part.name.replace(".parquet", ".again.parquet")).write_bytes(rng.choice(_FOREIGN))
    else:
        names = ["../../etc", "run.json", "", "frames", "frames/../..", "columns/x/\0", 7, str(path)]
        (root / "run.damaged.json").write_text(json.dumps(rng.sample(names, 3)))


# Folders


def _without(path: Path, _: Random, __: Path) -> None:
    shutil.rmtree(path)


def _file_in_place(path: Path, _: Random, __: Path) -> bool:
    shutil.rmtree(path)
    path.write_text("in the way")
    return True


def _circle(path: Path, rng: Random, _: Path) -> bool:
    shutil.rmtree(path)
    path.symlink_to(rng.choice((path.name, "..", "nowhere")))
    return True


def _closed(path: Path, rng: Random, _: Path) -> bool:
    path.chmod(rng.choice((0, 0o500, 0o300)))
    return True


_WAYS = (_flip, _flip, _cut, _cut, _empty, _foreign, _other, _delete, _delete, _stranger, _leases, _marks)
_KIND_WAYS = (_folder_in_place, _pipe_in_place, _link, _forbidden)
_FOLDER_WAYS = (_without, _without, _file_in_place, _circle, _closed)
