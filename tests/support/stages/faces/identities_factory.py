"""Shared by the tests of identities: synthetic faces of known people, in a table like that of `faces`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from framekiln.contract.placement import Placement
from framekiln_stages.identities.stage import Identities
from framekiln_stages.shared.tables import NETWORK, vector_array


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def blobs(random, count, length, share=0.8):
    """Return unit vectors around random centres, in random order; the rest anywhere."""
    middles = random.normal(size=(max(2, count // 40), length))
    points = middles[random.integers(len(middles), size=count)] + random.uniform(0.2, 0.8) * random.normal(
        size=(count, length)
    )
    lone = random.random(count) > share
    points[lone] = random.normal(size=(lone.sum(), length))
    return unit(points)


def people(sizes, length=64, spread=0.5, seed=0):
    """Return faces of people, one person after the other; cosines within a person are about 0.8."""
    random = np.random.default_rng(seed)
    return np.concatenate(
        [unit(random.normal(size=(1, length))) * 8 + spread * random.normal(size=(n, length)) for n in sizes]
    )


MEASURED = {"network": "mobilefacenet", "sharpness": 110, "strength": 17}  # a sharp face, as the network sees it


def rows(
    vectors, names=None, quality=0.9, score=0.95, side=0.5, per_frame=1, kind=np.float32, network="", crops=None, **more
):
    """Return a table like that of `faces`, with `per_frame` faces in each frame of 100 x 200 px.

    `crops`: thumbnails, n 256; None: none. `more`: further numbers of each face.
    """
    count = len(vectors)
    corner = pa.array(np.zeros(count, np.float32))
    edge = pa.array(np.full(count, side, np.float32))
    box = pa.StructArray.from_arrays([corner, corner, edge, edge], ["x0", "y0", "x1", "y1"])
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(unit(vectors).astype(kind).reshape(-1)), vectors.shape[1])
    named = {"score": score, "quality": quality, **more}
    numbers = [pa.array(np.broadcast_to(np.float32(value), count).copy()) for value in named.values()]
    members = {"box": box, **dict(zip(named, numbers, strict=True)), "embedding": embeddings}
    if crops is not None:
        members["thumbnail"] = vector_array(crops, "uint8")
    faces = pa.StructArray.from_arrays([*members.values()], [*members])
    offsets = pa.array([*range(0, count, per_frame), count], pa.int32())
    frames = len(offsets) - 1
    names = [f"{i:05}.jpg" for i in range(frames)] if names is None else names
    table = pa.table(
        {
            "media_id": names,
            "frame_index": pa.array([0] * frames, pa.int32()),
            "height": pa.array([100] * frames, pa.int32()),
            "width": pa.array([200] * frames, pa.int32()),
            "faces": pa.ListArray.from_arrays(offsets, faces),
        }
    )
    column = table.schema.field("faces").with_metadata({NETWORK: network})
    return table.set_column(table.schema.get_field_index("faces"), column, table["faces"])


def identities(**settings):
    stage = Identities(Identities.Config(**settings))
    stage.setup({}, Placement(cpus=2.0))
    return stage


def numbers(tables):
    return [-1 if n is None else n for n in tables["identities"]["identity"].to_pylist()]
