"""Images that parts name, and that are missing or empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa

from pipeline.contract.errors import DamagedError
from pipeline.contract.output_names import COLUMNS, IMAGES
from pipeline.output.object_store import Store

_DOTS = 2  # in the name of a part; names of failures and marks have a word more


def parts_without_images(store: Store, folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the paths of parts that name missing or empty images, with the number of these.

    It costs one reading of the columns of paths, and one listing of their images.

    Raises:
        OutputError: the disk or the bucket refuses.
    """
    with ThreadPoolExecutor() as pool:  # a bucket takes 50 ms for each part
        for folder in folders:
            parts = [f"{COLUMNS}/{folder}/{name}" for name in store.names(f"{COLUMNS}/{folder}")]
            parts = [path for path in parts if path.endswith(".parquet") and path.count(".") == _DOTS]
            named = dict(zip(parts, pool.map(lambda path: _images(store, path), parts), strict=True))
            lost = store.without_content(IMAGES, {image for images in named.values() for image in images})
            for path, images in named.items():
                if count := sum(image in lost for image in images):
                    yield path, count


def _images(store: Store, part: str) -> list[str]:
    """Return the images that a part names; none if it is damaged, or of a step without images."""
    with suppress(DamagedError, FileNotFoundError), store.parquet(part) as file:
        names = [item.name for item in file.schema_arrow if item.type == pa.string()]
        columns = [column.drop_null() for column in (file.read(columns=names).columns if names else ())]
        columns = [column for column in columns if len(column) and column[0].as_py().startswith(f"{IMAGES}/")]
        return [image for column in columns for image in column.to_pylist()]
    return []
