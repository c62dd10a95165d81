"""WebDataset: tar files with a picture, a record and the embeddings of each row.

A member's key ends at its first dot, so keys are numbers (six digits of the shard, six of the row), and the record has
the file's name. Equal rows give equal bytes: members have no time or owner.
"""

import io
import tarfile
from collections.abc import Iterator

import numpy as np

from framekiln.export.formats.record import Sharded, free_name, make_record, to_json
from framekiln.export.pictures import Pictured


class Writer(Sharded):
    """Writes SPLIT-000000.tar, with members KEY.jpg, KEY.json and KEY.EMBEDDING.npy."""

    def name_shard(self, split: str, number: int) -> str:
        return f"{split}-{number:06d}.tar"

    def write_shard(self, split: str, number: int, rows: Iterator[Pictured]) -> None:
        with (
            self.destination.writing(self.name_shard(split, number)) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for key, (image, still) in enumerate(rows):
                name = f"{number:06d}{key:06d}"
                _add(tar, f"{name}{still.ending}", still.data)
                record = make_record(image) | {"split": split}
                _add(tar, f"{name}.json", to_json(record).encode())
                for column, vector in image.embeddings.items():
                    content = io.BytesIO()
                    np.save(content, np.asarray(vector, np.float32))
                    _add(tar, f"{name}.{free_name(column)}.npy", content.getvalue())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
