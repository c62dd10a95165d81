"""The chosen rows of an output as images with their annotations, in batches: memory does not grow with their number.

The order is that of the files of `frames/`, sorted by their first row, so frames of a film come one after another.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from framekiln.contract.columns import KEYS, PLACES
from framekiln.contract.output_names import FRAMES
from framekiln.export.declared import Declared
from framekiln.export.image import ExportedImage
from framekiln.export.reading import Reader
from framekiln.output.object_store import Store

BATCH = 256
"""Rows read at once: their masks and embeddings are some 10 MB."""
NEEDED = (*KEYS, *PLACES.names, "media_type", "time_s", "height", "width")


@dataclass(kw_only=True)
class Rows:
    """The chosen rows."""

    store: Store
    declared: Declared
    kinds: frozenset[str]  # that are exported
    keypoints: str  # coco17 or all
    chosen: Mapping[str, frozenset[int]] | None  # frames of each file; None for all
    unknown: Counter[str] = field(default_factory=Counter)
    """Rows left out, by the column that is null there: nobody knows what is on these frames."""

    def read(self) -> Iterator[list[ExportedImage]]:
        """Yield images in the size of their frame."""
        reader = Reader(self.store, self.declared, self.kinds, self.keypoints)
        vectors = self.declared.vectors if "embeddings" in self.kinds else ()
        columns = list(dict.fromkeys([*NEEDED, *reader.columns, *vectors, *self.declared.values]))
        for name in self._list_files():
            with self.store.parquet(f"{FRAMES}/{name}") as file:
                present = [column for column in columns if column in file.schema_arrow.names]
                for batch in file.iter_batches(BATCH, columns=present):
                    rows = self._choose(pa.Table.from_batches([batch]))
                    if rows.num_rows:
                        yield list(self._make_images(rows, reader, vectors))

    @property
    def notes(self) -> list[str]:
        """Sentences about rows that were left out."""
        return [
            f"Frames left out, since {column!r} is null there: {count:,}." for column, count in self.unknown.items()
        ]

    def _list_files(self) -> list[str]:
        """Return the files of `frames/` in the order of their first rows; an empty one is left out."""
        found = []
        for name in self.store.names(FRAMES):
            if name.endswith(".parquet"):
                with self.store.parquet(f"{FRAMES}/{name}") as file:
                    first = next(file.iter_batches(1, columns=list(KEYS)), None)
                    found += [] if not first else [(*first.to_pylist()[0].values(), name)]
        return [name for *_, name in sorted(found)]

    def _choose(self, rows: pa.Table) -> pa.Table:
        if self.chosen is None:
            return rows
        pairs = zip(*(rows[key].to_pylist() for key in KEYS), strict=True)
        return rows.filter(pa.array([index in self.chosen.get(name, ()) for name, index in pairs], pa.bool_()))

    def _make_images(self, rows: pa.Table, reader: Reader, vectors: tuple[str, ...]) -> Iterator[ExportedImage]:
        found = reader.read(rows)
        needed = rows.select(NEEDED).to_pylist()
        values = rows.select([name for name in self.declared.values if name in rows.column_names]).to_pylist()
        embeddings = rows.select(list(vectors)).to_pylist() if vectors else [{}] * len(needed)
        for row, annotations, value, vector in zip(needed, found, values, embeddings, strict=True):
            if isinstance(annotations, str):
                self.unknown[annotations] += 1
                continue
            yield ExportedImage(
                **row,
                annotations=annotations,
                values={name: item for name, item in value.items() if item is not None and name not in NEEDED},
                embeddings={name: item for name, item in vector.items() if item is not None},
            )
