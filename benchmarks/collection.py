"""From a folder to training data by the commands of docs/training-data.md, on a collection with planted copies.

    python -m benchmarks.collection [--photos 2000] [--copies 500] [--films 20] [--costly 20]

It prints the time of each command, how many planted copies were found and how many strangers were taken for copies,
how many copies a split by files alone would put beside their originals in other splits, and how many the export does.
`--costly N` then runs `segment` (SAM 2.1, random weights) on N chosen rows of the same output by `--rows`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

import framekiln
from benchmarks.made_collection import MadeCollection, make_collection

STEPS = "metadata,quality,lighting,frozen,duplicates,shots"
SHARP = "sharpness > 200 and not is_black"
SPLIT = ("--split", "80/10/10", "--by", "duplicate")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", "in", "out", "--stages", STEPS),
    (
        *("select", "out", "--where", SHARP, "--unique", "--per", "shot=1", "--order", "sharpness"),
        *("--balance", "lighting_key", "--limit", "600", "--save", "balanced"),
    ),
    ("select", "out", "--where", SHARP, "--save", "sharp"),
    ("export", "out", "coco", "--to", "coco", "--selection", "balanced", "--images", "copy", *SPLIT),
    ("export", "out", "shards", "--to", "webdataset", "--selection", "sharp", "--images", "copy", *SPLIT),
    ("export", "out", "clips", "--to", "clips", "--min-seconds", "2", *SPLIT),
)


def call(place: Path, *words: str) -> float:
    """Run a command in a folder, print its last line, and return its seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "framekiln", *words], cwd=place, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    said = [line.strip() for line in done.stdout.splitlines() if line.strip() and not line.startswith("Report")]
    shown = said[0 if words[0] == "export" else -1 :]
    print(f"{seconds:7.1f} s  framekiln {' '.join(words)}", *shown, sep="\n           ", flush=True)
    return seconds


def compare_copies(out: Path, made: MadeCollection) -> set[str]:
    """Print how many planted copies are in a group with their original, by kind, and return those that are not."""
    groups: dict[int, set[str]] = defaultdict(set)
    for row in framekiln.open(out).table("duplicates").to_table(columns=["media_id", "group"]).to_pylist():
        groups[row["group"]].add(row["media_id"])
    pairs = {frozenset((a, b)) for group in groups.values() for a in group for b in group if a < b}
    hits = {copy: frozenset((copy, original)) in pairs for copy, (original, _) in made.copies.items()}
    kinds: dict[str, list[bool]] = defaultdict(list)
    for copy, (_, kind) in made.copies.items():
        kinds[kind].append(hits[copy])
    found = sum(hits.values())
    print(f"copies: {found} of {len(made.copies)} found, {len(pairs) - found} pairs of strangers taken for copies")
    print("  " + ", ".join(f"{kind} {sum(own)}/{len(own)}" for kind, own in kinds.items()))
    parts = framekiln.open(out).table("film_copies").to_table(columns=["media_id", "other_media_id"]).to_pylist()
    print(f"films that share a scene: {[tuple(row.values()) for row in parts]}, planted {made.scenes}")
    return {copy for copy, hit in hits.items() if not hit}


def list_leaks(made: MadeCollection, splits: Mapping[str, str]) -> list[str]:
    """Return the planted copies and scenes that are in another split than what they are of."""
    pairs = [(copy, original) for copy, (original, _) in made.copies.items()] + [made.scenes]
    return [one for one, other in pairs if {one, other} <= splits.keys() and splits[one] != splits[other]]


def by_files(names: Iterator[str] | list[str]) -> dict[str, str]:
    """Return the splits that hashes of file names give, as most scripts make them."""
    places = {name: int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) / 2**32 for name in names}
    return {name: "train" if at < 0.8 else "val" if at < 0.9 else "test" for name, at in places.items()}


def read_shards(folder: Path) -> dict[str, str]:
    """Return the split of each file in WebDataset shards."""
    found = {}
    for path in sorted(folder.rglob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                if member.name.endswith(".json") and (content := shard.extractfile(member)):
                    record = json.load(content)
                    found[record["media_id"]] = record["split"]
    return found


def main() -> None:
    """Make the collection, run the commands, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--copies", type=int, default=500)
    parser.add_argument("--films", type=int, default=20)
    parser.add_argument("--costly", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = make_collection(place / "in", options.photos, options.copies, options.films)
        total = sum(call(place, *words) for words in COMMANDS)
        print(f"{total:7.1f} s  in all")
        missed = compare_copies(place / "out", made)
        splits = read_shards(place / "shards")
        for name, own in (("hashes of file names", by_files(list(splits))), ("--by duplicate", splits)):
            leaks = list_leaks(made, own)
            unknown = len(missed.intersection(leaks))
            print(f"split by {name}: {len(leaks)} planted pairs in two splits, {unknown} of them copies not found")
        if options.costly:
            measure_costly(place, options.costly)


def measure_costly(place: Path, count: int) -> None:
    """Print what `segment` takes on some chosen rows, and what that means for all of them and for all chosen ones."""
    out = framekiln.open(place / "out")
    rows, chosen = out.table("frames").count_rows(), len(out.selection("balanced"))
    call(place, "select", "out", "--where", SHARP, "--unique", "--limit", str(count), "--save", "few")
    steps = ("--stages", f"{STEPS},segment", "--missing-weights", "dummy")
    call(place, "run", "in", "out", *steps, "--rows", "few")
    call(place, "export", "out", "masks", "--to", "coco", "--selection", "few", "--images", "copy")
    figures = json.loads((place / "out" / "run.json").read_text())["figures"]["segment"]
    each = figures["busy_s"] / figures["rows"]
    hours = (f"{number:,} rows {each * number / 3600:.1f} h" for number in (rows, chosen))
    print(f"segment: {each:.1f} s a row; {', '.join(hours)}")


if __name__ == "__main__":
    main()
