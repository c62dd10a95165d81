"""Groups of copies among the photos of a run, and parts that videos share.

A copy is the same picture: re-encoded, resized or recoloured, with bars, a logo or text. It may be mirrored, turned by
90, 180 or 270 degrees, or cropped by up to a tenth of its sides, but only one of these. Frames of a burst are copies if
they look alike.

Shapes: n photos, p pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract import FRAME_INDEX, MEDIA_ID, Drawing, NonNegative, Scope, Stage, Table, field
from framekiln_stages.duplicates.best import CHANGE, EDITED, TAGS, Copies
from framekiln_stages.duplicates.confirmation import EMBEDDING, confirm, measure_cosines
from framekiln_stages.duplicates.earlier import (
    PAIRS,
    SEARCHED,
    TABLES,
    digest_looks,
    make_tables,
    read_earlier,
)
from framekiln_stages.duplicates.films import FILMS, choose_kept, find_parts
from framekiln_stages.duplicates.hashes import SIDE, VIEWS, WINDOWS, Bytes
from framekiln_stages.duplicates.scenes import SCENES, find_neighbours
from framekiln_stages.duplicates.search import Ints, Pairs, add_equal, concat, find_copies, find_lone, label_linked

COPIES = pa.schema(
    [
        MEDIA_ID,
        FRAME_INDEX,
        field("group", pa.int64(), "number of the group of copies, from 0, by first media_id", nullable=False),
        field("keep", pa.bool_(), "true for the one of its group to keep", nullable=False),
        field(
            "reason",
            pa.string(),
            "why the kept one is kept: whole (others are cropped), coloured (others are grey or toned), original "
            "(others are enlarged), sharper (more detail), bare (no bars, margin), cleaner (fewer blocks, less noise), "
            "tags (it has the camera's, and no program changed it later; others are as sharp, or changed), larger, "
            "unclipped (less of it is at its brightest), or first (the shortest name, as a copy is called `a (1).jpg`)",
            nullable=False,
        ),
        field("copy_of", pa.string(), "media_id of the copy to keep; null in its own row"),
        field(
            "kind",
            pa.string(),
            "of the pair with `copy_of`, or with its nearest copy (the kept one's, and where others link the two): "
            "bytes (the same file), same, crop, mirrored, turned (by 90 degrees), upside down",
            nullable=False,
        ),
        field("distance", pa.int32(), "differing bits of the two 128-bit hashes of `kind`", nullable=False),
        field("cosine", pa.float32(), "cosine of its CLIP embedding and that of the copy to keep, or null"),
    ]
)


class Duplicates(Stage):
    """Groups of copies with the best of each, photos of one scene, and parts that videos share."""

    finds = (
        ("duplicates", "photo with copies", "photos with copies"),
        ("film_copies", "shared part of films", "shared parts of films"),
    )
    version = 12  # 12: grey copies give way; 11: crops and edited copies give way, cropped films to their end
    optional_inputs = (*TAGS, EDITED, CHANGE, EMBEDDING)
    scope = Scope.DATASET
    inputs = (
        *("media_id", "frame_index", "media_type", "time_s", "height", "width"),
        *("picture_hash", "crop_hashes", "content_digest", "thumbnail", "colours"),
        *("sharpness", "blockiness", "noise", "bars"),
    )
    tables: ClassVar[dict[str, Table]] = {
        "duplicates": Table(
            schema=COPIES, keys=("media_id", "frame_index"), description="a row for each photo that has copies"
        ),
        "film_copies": Table(
            schema=FILMS, keys=("media_id", "start_s", "other_media_id"), description="parts that two films share"
        ),
        "scenes": SCENES,
        **TABLES,
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The shortest part of a video that counts."""

        least_s: NonNegative = 3.0  # shortest shared part, or 0.8 of a shorter film; titles of a series are shorter

    @property
    def keeps(self) -> tuple[str, ...]:
        """The search of the output's last run."""
        return SEARCHED, PAIRS

    def __call__(self, batch: pa.Table, kept: Mapping[str, pa.Table] | None = None) -> dict[str, pa.Table]:
        """Find copies among all rows of the run. `kept`: the search of the last run."""
        rows = batch.sort_by([("media_id", "ascending"), ("frame_index", "ascending")])
        with self.phase("preprocess"):
            photos = rows.filter(pc.equal(rows["media_type"], "photo"))
            hashed = np.flatnonzero(photos["crop_hashes"].is_valid())
            known = photos.take(hashed)
            whole, crops, small = (_read_bytes(known[name]) for name in ("picture_hash", "crop_hashes", "thumbnail"))
            hashes = np.concatenate((whole, crops), axis=1).reshape(-1, len(WINDOWS), 16)
            lone, place = find_lone(hashes)
            every = small.reshape(-1, SIDE, SIDE)
            hashes, small = hashes[lone], every[lone]
            names = known["media_id"].combine_chunks().take(pa.array(lone))
            looks = digest_looks(hashes, small, self.version)
            fresh, before = read_earlier(
                kept or {name: TABLES[name].schema.empty_table() for name in self.keeps}, names, looks
            )
        with self.phase("infer"):
            pairs = concat(Pairs, [before, find_copies(hashes, small, fresh)])
            films = rows.filter(rows["time_s"].is_valid())
            parts = find_parts(films, self.config.least_s)
            beside = [hashed[ends] for ends in find_neighbours(known, every)]
        with self.phase("postprocess"):
            copies = add_equal(pairs, lone, place).at(hashed)
            if EMBEDDING in photos.column_names:
                copies = confirm(copies, photos[EMBEDDING])
            found = {"duplicates": _group(photos, copies), "scenes": _name_scenes(photos, copies, *beside)}
            found["film_copies"] = choose_kept(films, parts)
            return found | make_tables(names, looks, pairs)

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        found = row["duplicates"]
        if not found:
            return None
        copy = found[0]
        return Drawing(caption="has copies, kept" if copy["keep"] else f"a copy of {copy['copy_of']}")


def _read_bytes(column: pa.ChunkedArray) -> Bytes:
    """Return a binary column of one length, without nulls, as n rows of bytes."""
    array = column.combine_chunks()
    size = array.type.byte_width
    start = array.offset * size
    return np.frombuffer(array.buffers()[1] or b"", np.uint8)[start : start + len(array) * size].reshape(-1, size)


def _number_files(photos: pa.Table) -> NDArray[np.int64]:
    """Return a number (n) for each photo; equal for equal bytes."""
    coded = pc.dictionary_encode(photos["content_digest"]).combine_chunks().indices
    lone = np.arange(len(photos)) + len(photos)  # for files without a digest
    return np.where(coded.is_valid(), coded.fill_null(0).to_numpy(zero_copy_only=False), lone)


def _label(files: Ints, first: Ints, second: Ints) -> Ints:
    """Return the group of each photo (n): linked directly, through others, or by equal bytes."""
    n = len(files)
    return label_linked(np.concatenate((first, np.arange(n))), np.concatenate((second, n + files)), 2 * n)[:n]


def _name_scenes(photos: pa.Table, copies: Pairs, first: Ints, second: Ints) -> pa.Table:
    """Return a row for each photo of a scene with several photos, from pairs of copies and of neighbours."""
    _, files = np.unique(_number_files(photos), return_inverse=True)
    labels = _label(files, np.concatenate((copies.first, first)), np.concatenate((copies.second, second)))
    _, begins, scene, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    several = np.flatnonzero(sizes[scene] > 1)
    rows = photos.select(["media_id", "frame_index"])
    names = rows["media_id"].take(pa.array(begins[scene[several]]))
    return rows.take(several).append_column("scene", names).cast(SCENES.schema)


def _group(photos: pa.Table, pairs: Pairs) -> pa.Table:
    """Return a row for each photo of a pair, and for each file with a twin of equal bytes."""
    _, files, sizes = np.unique(_number_files(photos), return_inverse=True, return_counts=True)
    labels = _label(files, pairs.first, pairs.second)
    nearest = {int(at): (-1, "bytes") for at in np.flatnonzero(sizes[files] > 1)}
    kinds = np.where(pairs.window > 0, "crop", np.array(VIEWS)[pairs.view])
    direct: dict[tuple[int, int], tuple[int, str]] = {}
    for ends in ((pairs.first, pairs.second), (pairs.second, pairs.first)):
        for at, other, *near in zip(*map(np.ndarray.tolist, (*ends, pairs.distance, kinds)), strict=True):
            direct[at, other] = near[0], near[1]
            nearest[at] = min(
                nearest.get(at, (129, "")), direct[at, other], key=lambda link: (link[0], link[1] != "same")
            )
    order = sorted(nearest)
    photos = photos.take(pa.array(order, pa.int64()))
    groups: dict[int, list[int]] = {}
    for at, label in enumerate(labels[np.array(order, np.int64)].tolist()):
        groups.setdefault(label, []).append(at)
    names, index = photos["media_id"].to_pylist(), photos["frame_index"].to_pylist()
    copies = Copies.measure(photos)
    looks = np.asarray(pc.dictionary_encode(photos["picture_hash"]).combine_chunks().indices.fill_null(-1))
    cut = np.flatnonzero(pairs.window > 0)
    crops = (looks[np.searchsorted(order, ends[cut])].tolist() for ends in (pairs.first, pairs.second))
    lesser = copies.find_lesser(looks.tolist(), zip(*crops, strict=True))
    found = []
    for number, members in enumerate(groups.values()):
        named = sorted(members, key=lambda at: len(names[at].rpartition("/")[2]))
        best, reason = copies.choose(named, lesser, photos["thumbnail"])
        for at in members:
            is_same_file = at != best and files[order[at]] == files[order[best]]
            link = (-1, "bytes") if is_same_file else direct.get((order[at], order[best]), nearest[order[at]])
            found.append(
                {"media_id": names[at], "frame_index": index[at], "group": number, "keep": at == best, "reason": reason}
                | {"copy_of": None if at == best else names[best], "distance": max(link[0], 0), "kind": link[1]}
            )
    return _add_cosines(photos, pa.Table.from_pylist(found, schema=COPIES))


def _add_cosines(photos: pa.Table, copies: pa.Table) -> pa.Table:
    """Return copies with the cosine of each embedding and that of the copy to keep."""
    if EMBEDDING not in photos.column_names:
        return copies
    places = [
        pc.index_in(copies[name], value_set=photos["media_id"].combine_chunks()) for name in ("media_id", "copy_of")
    ]
    known = places[1].is_valid()
    cosines = measure_cosines(photos[EMBEDDING], *(place.fill_null(0).to_numpy() for place in places))
    values = pa.array(cosines, mask=np.isnan(cosines) | ~known.to_numpy())
    return copies.set_column(len(COPIES) - 1, COPIES.field(len(COPIES) - 1), values)
