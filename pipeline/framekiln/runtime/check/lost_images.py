"""Images that parts name, and that are missing, empty or cut."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow as pa

from framekiln.contract.errors import DamagedError
from framekiln.contract.output_names import COLUMNS, IMAGES
from framekiln.output.object_store import Store

_ENDS = {b"\x89PNG": b"IEND\xaeB`\x82", b"\xff\xd8": b"\xff\xd9"}  # PNG, JPEG
_DOTS = 2  # in the name of a part; names of failures and marks have a word more


def parts_without_images(store: Store, folders: Iterable[str], *, read: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the paths of parts that name missing or empty images, with the number of these.

    It costs one reading of the columns of paths, and one listing of their images. With `read` all images are read, and
    those that cannot be or lack their end count as missing.

    Raises:
        OutputError: the disk or the bucket refuses.
    """
    with ThreadPoolExecutor() as pool:  # a bucket takes 50 ms for each part
        for folder in folders:
            parts = [f"{COLUMNS}/{folder}/{name}" for name in store.names(f"{COLUMNS}/{folder}")]
            parts = [path for path in parts if path.endswith(".parquet") and path.count(".") == _DOTS]
            named = dict(zip(parts, pool.map(lambda path: _list_images(store, path), parts), strict=True))
            paths = {image for images in named.values() for image in images}
            lost = store.without_content(IMAGES, paths)
            if read:
                there = list(paths - lost)
                lost |= {path for path, cut in zip(there, pool.map(partial(_is_cut, store), there), strict=True) if cut}
            for path, images in named.items():
                if count := sum(image in lost for image in images):
                    yield path, count


def _is_cut(store: Store, path: str) -> bool:
    """Return whether an image cannot be read, or ends before its format says so."""
    try:
        data = store.read(path)
    except (DamagedError, FileNotFoundError):
        return True
    if data[:4] == b"RIFF":
        return len(data) < 8 + int.from_bytes(data[4:8], "little")
    return not data.endswith(next((end for start, end in _ENDS.items() if data.startswith(start)), b""))


def _list_images(store: Store, part: str) -> list[str]:
    with suppress(DamagedError, FileNotFoundError), store.parquet(part) as file:
        names = [item.name for item in file.schema_arrow if item.type == pa.string()]
        columns = [column.drop_null() for column in (file.read(columns=names).columns if names else ())]
        columns = [column for column in columns if len(column) and column[0].as_py().startswith(f"{IMAGES}/")]
        return [image for column in columns for image in column.to_pylist()]
    return []
