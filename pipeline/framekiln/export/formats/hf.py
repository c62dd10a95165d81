"""Hugging Face datasets: Parquet files that contain the pictures, and a card that names their splits.

`datasets.load_dataset(FOLDER)` reads it, and so does the Hub after an upload. The schema's metadata marks `image` as a
picture; all other columns are plain Arrow.
"""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.export.formats.record import Sharded, for_arrow, make_record, make_schema
from framekiln.export.pictures import Pictured
from framekiln.export.request import WHOLE

_FEATURES = {b"huggingface": json.dumps({"info": {"features": {"image": {"_type": "Image"}}}}).encode()}
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_GROUP = 100
"""Rows of a row group, small for the Hub's viewer, which reads one at a time."""
_MOST = 256 << 20  # bytes of pictures in a row group, far below the 2 GiB of an Arrow array
_CARD = """---
configs:
- config_name: default
  data_files:
{files}
---

{rows}

`objects` has boxes (`bbox`: left, top, width, height in px), masks (`segmentation`: COCO's compressed run lengths),
keypoints (x, y, visibility) and their categories, which `categories.json` names.
"""


class Writer(Sharded):
    """Writes data/SPLIT-00000.parquet and README.md."""

    def name_shard(self, split: str, number: int) -> str:
        return f"data/{_name_split(split)}-{number:05d}.parquet"

    def write_shard(self, split: str, number: int, rows: Iterator[Pictured]) -> None:
        schema = pa.schema([("image", _IMAGE), *make_schema(self.columns)], metadata=_FEATURES)
        with (
            self.destination.writing(self.name_shard(split, number)) as stream,
            pq.ParquetWriter(stream, schema, compression="zstd") as table,
        ):
            for group in _cut(rows, number):
                table.write_table(pa.Table.from_pylist(group, schema=schema))

    def end(self) -> None:
        super().end()
        names = [_name_split(split) for split in sorted(self._shards)]
        files = "\n".join(f"  - split: {name}\n    path: data/{name}-*.parquet" for name in names)
        self.destination.write("README.md", _CARD.format(files=files, rows=f"# {self.request.to}").encode())


def _name_split(split: str) -> str:
    """Return a split's name on the Hub, where "all" is reserved."""
    return "train" if split == WHOLE else split


def _cut(rows: Iterator[Pictured], shard: int) -> Iterator[list[dict[str, object]]]:
    """Yield rows as values of the schema, in groups."""
    group, size = [], 0
    for number, (image, still) in enumerate(rows):
        picture = {"bytes": still.data, "path": f"{shard:06d}{number:06d}{still.ending}"}
        group.append({"image": picture, **for_arrow(make_record(image), image)})
        size += len(still.data)
        if len(group) == _GROUP or size >= _MOST:
            yield group
            group, size = [], 0
    if group:
        yield group
