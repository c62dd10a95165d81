"""A small finished output with every kind of file, and the same once more for comparison: made in this process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import yaml

from framekiln.contract.output_names import FOLDERS
from framekiln.output.object_store import Store
from tests.support.machine.command_line import command
from tests.support.media.collections_factory import clip, photo
from tests.support.runs.serial_engine import without_ray
from tests.support.runs.weights_factory import CONTENT, body

_STEPS = {
    "crc": "tests.toys:Checksum",
    "near": "tests.toys:Neighbours",
    "twice": "tests.toys:Double",
    "portraits": "tests.faults.outputs.output_stages:Portraits",
    "seeded": "tests.toys.weighted:Bound",
    "count": "tests.toys:Count",
    "guests": "tests.toys:Guests",
    "identities": "framekiln_stages.identities:Identities",
}
_SETTINGS = {"seeded": {"model": "toy"}, "identities": {"min_side": 0}}
KEPT = ("out", "known", "weights", "names")
_NOT_COMPARED = FOLDERS - {"frames", "errors"}


@dataclass(frozen=True)
class Sample:
    """A folder with an output, and what its run was given."""

    folder: Path

    @property
    def out(self) -> Path:
        """The output."""
        return self.folder / "out"

    @property
    def known(self) -> Path:
        """Another output, with identities that have numbers."""
        return self.folder / "known"

    @property
    def weights(self) -> Path:
        """The folder of weights."""
        return self.folder / "weights"

    def run(self, *more: object) -> list[str]:
        """Return the words of the run into the output."""
        return self._run(self.out, "--identities-from", self.known, *more)

    def _run(self, out: Path, *more: object) -> list[str]:
        given = {"--pipeline": "pipeline.yaml", "--input": "in", "--weights-dir": "weights"}
        words = [word for option, name in given.items() for word in (option, self.folder / name)]
        named = f"identities.named={self.folder / 'names' / 'names.csv'}"
        return [str(word) for word in ("run", *words, "--set", named, "--output", out, *more)]

    def put_back(self, whole: Path, *names: str) -> None:
        """Replace its folders by those of a copy; in the same place, since paths are a part of tables."""
        for name in names or (*KEPT, "exported"):
            remove(self.folder / name)
            if name in KEPT:
                shutil.copytree(whole / name, self.folder / name)


def make_sample(folder: Path) -> Sample:
    """Make the output in an empty or missing folder."""
    sample = Sample(folder)
    for i in range(3):
        photo(folder / "in" / f"photo{i}.png", i)
    clip(folder / "in" / "clip.png", 100, 12)
    (folder / "in" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    sample.weights.mkdir()
    (sample.weights / "toy.bin").write_bytes(CONTENT)
    (folder / "names").mkdir()
    (folder / "names" / "names.csv").write_text("media_id,frame_index,face_index,name\nclip.png,0,0,Ada\n")
    entry = body()
    steps = {name: {"use": use, "with": _SETTINGS.get(name, {})} for name, use in _STEPS.items()}
    steps["maybe"] = {"use": "tests.toys:Maybe", "where": "media_id in (select media_id from counts)"}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({"models": {entry.pop("name"): entry}, "steps": steps}))
    with without_ray():
        chosen = ["select", sample.out, "--where", "frame_index < 5", "--save", "kept"]
        for words in (sample._run(sample.known, "--limit", 2), sample.run(), chosen):
            done = command(*words)
            assert done.returncode == 0, done.stdout + done.stderr
    return sample


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with folders that are closed."""
    if path.is_dir() and not path.is_symlink():
        path.chmod(0o755)
        for inside in path.iterdir():
            remove(inside)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def tables(out: Path) -> dict[str, list[str]]:
    """Return the rows of every table of an output, sorted; other folders may hold images, moved there by a link."""
    store = Store(str(out))
    result = {}
    for folder in sorted(set(store.folders()) - _NOT_COMPARED):
        names = [name for name in store.names(folder) if name.endswith(".parquet")]
        if read := [store.read_table(f"{folder}/{name}") for name in names]:
            result[folder] = sorted(map(repr, pa.concat_tables(read).to_pylist()))
    return result
