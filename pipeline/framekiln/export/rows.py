"""The chosen rows of an output as annotated images, in batches: memory does not grow with their number.

The order is that of the files of `frames/`, sorted by first row, so a video's frames are consecutive.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from framekiln.contract.columns import KEYS, PLACES, FrameKey
from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import FRAMES
from framekiln.export.annotation import Annotation, ExportedImage
from framekiln.export.declared import Declared
from framekiln.export.formats import find_format
from framekiln.export.making import Item, Maker, read_lists, wanted_members
from framekiln.export.request import KINDS, ExportRequest
from framekiln.export.splits import by_file
from framekiln.output.object_store import Store
from framekiln.selection.request import SelectionRequest
from framekiln.selection.selection import Selection, read_selection, select

BATCH = 256
"""Rows read at once: their masks and embeddings are some 10 MB."""
NEEDED = (*KEYS, *PLACES.names, "media_type", "time_s", "height", "width")
Size = tuple[int, int]  # width, height
_KIND_OF = {"track": "tracks", "identity": "identities"}


def read_chosen(store: Store, request: ExportRequest) -> Selection:
    """Return the chosen frames, in the order of choice.

    Raises ConfigError: there are none, or the choice is wrong.
    """
    name = request.selection
    chosen = select(store, SelectionRequest(where=request.where)) if name is None else read_selection(store, name)
    if not len(chosen):
        message = "No frame is chosen, so there is nothing to export; widen the choice."
        raise ConfigError(message, code="FK-EXPORT-EMPTY")
    return chosen


class Annotations:
    """Reads the annotations of rows, of the exported kinds, in px of the shown frame."""

    def __init__(self, store: Store, declared: Declared, kinds: frozenset[str], keypoints: str) -> None:
        wanted = {source.name: source for source in declared.columns if source.kind in kinds}
        self._main = [source for source in wanted.values() if source.of not in wanted]
        names = {source.name for source in self._main}
        self._beside = {source.of: source for source in declared.columns if source.of in names}
        self._tables = [source for source in declared.tables if source.kind in kinds]
        self._links = [link for link in declared.links if _KIND_OF[link.role] in kinds and link.of in names]
        self._vectors = "embeddings" in kinds
        self._makers = {source.name: Maker(source, keypoints) for source in (*self._main, *self._tables)}
        tables = {source.name for source in self._tables} | {link.table for link in self._links}
        self._data = {name: store.dataset(name, pa.schema([])) for name in sorted(tables)}

    @property
    def needed(self) -> list[str]:
        """Columns of `frames/` that must not be null on exported frames."""
        return [source.name for source in self._main]

    @property
    def columns(self) -> list[str]:
        return [*self.needed, *(source.name for source in self._beside.values())]

    @property
    def tables(self) -> set[str]:
        return set(self._data)

    def kinds_of(self, columns: Collection[str]) -> set[str]:
        """Return the kinds of columns, and of those beside them."""
        sources = (*self._main, *self._beside.values())
        return {source.kind for source in sources if not {source.name, source.of}.isdisjoint(columns)}

    def read(self, rows: pa.Table) -> Iterator[list[Annotation]]:
        """Yield the annotations of each row; its `needed` columns are not null."""
        keys: list[FrameKey] = list(zip(*(rows[key].to_pylist() for key in KEYS), strict=True))
        sizes = zip(rows["width"].to_pylist(), rows["height"].to_pylist(), strict=True)
        sources = [*self._main, *self._beside.values()]
        items = {
            source.name: read_lists(rows[source.name], wanted_members(source, vectors=self._vectors))
            for source in sources
        }
        tables = {name: self._read_table(name, keys) for name in self._data}
        for place, (key, size) in enumerate(zip(keys, sizes, strict=True)):
            own = {name: values[place] for name, values in items.items()}
            things = {name: found.get(key, []) for name, found in tables.items()}
            yield [*self._read_columns(own, things, size), *self._read_tables(things, size)]

    def _read_columns(
        self, own: dict[str, list[Item | None] | None], things: dict[str, list[Item]], size: Size
    ) -> Iterator[Annotation]:
        """Yield the annotations in one row's columns; `things`: rows of tables about it."""
        for source in self._main:
            ids: dict[int, Item] = defaultdict(dict)
            for link in (link for link in self._links if link.of == source.name):
                for row in things[link.table]:
                    if row[link.index] is not None:
                        value = row[link.value]
                        named = {"identity": value, "person": row.get("name")}
                        ids[row[link.index]] |= {"track": (link.table, value)} if link.role == "track" else named
            others = (own[self._beside[source.name].name] if source.name in self._beside else None) or []
            for number, item in enumerate(own[source.name] or []):
                beside = (others[number] if number < len(others) else None) or {}
                if item is not None:
                    yield from self._makers[source.name].make(item, size, beside=beside, ids=ids[number])

    def _read_tables(self, things: dict[str, list[Item]], size: Size) -> Iterator[Annotation]:
        """Yield the annotations in tables, except those that are items of an exported column too."""
        for source in self._tables:
            indices = [link.index for link in self._links if link.table == source.name]
            for row in things[source.name]:
                if all(row[index] is None for index in indices):
                    ids = {"track": (source.name, row[source.track])} if source.track else {}
                    yield from self._makers[source.name].make(row, size, beside={}, ids=ids)

    def _read_table(self, name: str, keys: Sequence[FrameKey]) -> dict[FrameKey, list[Item]]:
        media = sorted({key[0] for key in keys})
        near = (ds.field("media_id") >= media[0]) & (ds.field("media_id") <= media[-1])
        if len(media) == 1:  # a video: its frames are ascending
            near &= (ds.field("frame_index") >= keys[0][1]) & (ds.field("frame_index") <= keys[-1][1])
        found: dict[FrameKey, list[Item]] = {key: [] for key in keys}
        rows: list[dict[str, Any]] = self._data[name].to_table(filter=near).to_pylist()
        for row in rows:
            key = row["media_id"], row["frame_index"]
            if key in found:
                found[key].append(row)
        return found


class ExportRows:
    """The chosen rows, with the kinds that a request includes."""

    def __init__(self, store: Store, declared: Declared, request: ExportRequest) -> None:
        """Read which rows are chosen. Raises ConfigError: none, or no step has computed any."""
        kinds = request.include or frozenset()
        self._store, self._values = store, declared.values
        self._vectors = declared.vectors if "embeddings" in kinds else ()
        self._reader = Annotations(store, declared, kinds, request.keypoints)
        self.left_out = Counter[str]()  # frames by the column that is null there: no step has computed it
        chosen = read_chosen(store, request)
        own = {name for name in ("category",) if "categories" in kinds} | {*self._reader.columns, *self._vectors}
        self.sources = chosen.sources | own | self._reader.tables
        self.chosen = by_file(chosen.rows)
        self._kinds, self._asked = kinds, len(chosen)
        self._annotated = find_format(request.to).needs_annotations
        self._drop_unknown()

    @property
    def types(self) -> pa.Schema:
        """The types of rows' values, and of their embeddings if exported."""
        schema = self._store.dataset(FRAMES, pa.schema([])).schema
        return pa.schema([schema.field(name) for name in (*self._values, *self._vectors) if name not in NEEDED])

    def _drop_unknown(self) -> None:
        """Drop frames that no step has computed. Raises ConfigError: no frame is left."""
        frames, asked = self._store.dataset(FRAMES, pa.schema([])), self.chosen
        for name in self._reader.needed:
            nulls = by_file(frames.to_table(columns=list(KEYS), filter=ds.field(name).is_null()))
            null = {media_id: indices & nulls.get(media_id, frozenset()) for media_id, indices in asked.items()}
            if dropped := sum(map(len, null.values())):
                self.left_out[name] = dropped
                kept = {media_id: indices - null[media_id] for media_id, indices in self.chosen.items()}
                self.chosen = {media_id: indices for media_id, indices in kept.items() if indices}
        if not self.chosen:
            raise ConfigError(f"No chosen frame can be exported: {self._describe_left_out()}", code="FK-EXPORT-EMPTY")

    def read(self) -> Iterator[list[ExportedImage]]:
        """Yield images in the size of their frame."""
        columns = list(dict.fromkeys([*NEEDED, *self._reader.columns, *self._vectors, *self._values]))
        for name in self._list_files():
            with self._store.parquet(f"{FRAMES}/{name}") as file:
                present = [column for column in columns if column in file.schema_arrow.names]
                for batch in file.iter_batches(BATCH, columns=present):
                    rows = self._choose(pa.Table.from_batches([batch]))
                    if rows.num_rows:
                        yield list(self._make_images(rows))

    @property
    def warnings(self) -> list[str]:
        """A sentence on frames left out for lack of results; none without such frames."""
        kept = sum(map(len, self.chosen.values()))
        problem = f"Only {kept:,} of {self._asked:,} chosen frames are exported"
        return [f"{problem}: {self._describe_left_out()}"] if self.left_out else []

    def _describe_left_out(self) -> str:
        """Return which results are missing, and what to type so that these frames are exported too."""
        missing = " and ".join(f"{column!r} on {count:,}" for column, count in self.left_out.items())
        lacking = self._reader.kinds_of(self.left_out)
        rest = [kind for kind in KINDS if kind in self._kinds - lacking] or ([] if self._annotated else ["none"])
        fix = f"--include {','.join(rest)} exports them without {', '.join(sorted(lacking))}; or run" if rest else "Run"
        return f"no step has computed {missing}. {fix} the step there."

    def _list_files(self) -> list[str]:
        """Return the files of `frames/` in the order of their first rows, without empty ones."""
        found = []
        for name in self._store.names(FRAMES):
            if name.endswith(".parquet"):
                with self._store.parquet(f"{FRAMES}/{name}") as file:
                    first = next(file.iter_batches(1, columns=list(KEYS)), None)
                    found += [] if not first else [(*first.to_pylist()[0].values(), name)]
        return [name for *_, name in sorted(found)]

    def _choose(self, rows: pa.Table) -> pa.Table:
        pairs = zip(*(rows[key].to_pylist() for key in KEYS), strict=True)
        return rows.filter(pa.array([index in self.chosen.get(name, ()) for name, index in pairs], pa.bool_()))

    def _make_images(self, rows: pa.Table) -> Iterator[ExportedImage]:
        found = self._reader.read(rows)
        needed = rows.select(NEEDED).to_pylist()
        values = rows.select([name for name in self._values if name in rows.column_names]).to_pylist()
        embeddings = rows.select(list(self._vectors)).to_pylist() if self._vectors else [{}] * len(needed)
        for row, annotations, value, vector in zip(needed, found, values, embeddings, strict=True):
            yield ExportedImage(
                **row,
                annotations=annotations,
                values={name: item for name, item in value.items() if item is not None and name not in NEEDED},
                embeddings={name: item for name, item in vector.items() if item is not None},
            )
