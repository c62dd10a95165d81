"""The download of the test material: `make test-material`, or this module with another folder.

It uses the lockfile format and the download of `framekiln fetch`: a download that was cut off is continued, and a file
counts only with the size and sha256 of `tests/material.yaml`. A second call brings what is missing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import yaml

from framekiln.contract.errors import WeightsError
from framekiln.weights.download import download
from framekiln.weights.lockfile import Local, Url, WeightsEntry, load_lock
from tests.support.media.material import DOWNLOADS, LOCKFILE


def load_material(path: Path = LOCKFILE) -> dict[str, WeightsEntry]:
    """Return the entries by their paths below the folder of the material."""
    folders = yaml.safe_load(path.read_text(encoding="utf-8"))
    locks = {folder: load_lock(yaml.safe_dump(entries)) for folder, entries in folders.items()}
    return {f"{folder}/{entry.file}": entry for folder, lock in locks.items() for entry in lock.values()}


def bring(material: Mapping[str, WeightsEntry], folder: Path, report: Callable[[str], None] = print) -> int:
    """Download what the folder lacks.

    Args:
        material: entries by their paths below the folder.
        folder: of the material.
        report: takes one line for each entry that was downloaded or could not be had.

    Returns:
        How many entries that are published could not be downloaded.
    """
    failed = 0
    for name, entry in material.items():
        target = _place(name, folder)
        if _is_whole(entry, target):
            continue
        problem = _brought(entry, target)
        failed += problem is not None and any(isinstance(source, Url) for source in entry.sources)
        report(f"{name}: {problem or 'downloaded'}")
    return failed


def _place(name: str, folder: Path) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is no path below the folder of the material")
    return folder / path


def _is_whole(entry: WeightsEntry, path: Path) -> bool:
    if not path.is_file() or path.stat().st_size != entry.bytes:
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256


def _brought(entry: WeightsEntry, target: Path) -> str | None:
    """Download one file from the first of its sources that has it; None, or why none has it."""
    problems = []
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{entry.sha256[:16]}.part")
    for source in entry.sources:
        match source:
            case Url(url=url):
                try:
                    download(entry, url, part, lambda *_: None)
                except WeightsError as error:
                    problems.append(str(error).rstrip("."))
                else:
                    part.replace(target)
                    return None
            case Local(note=note):
                problems.append(f"not published as such ({note})")
    return "; ".join(problems)


if __name__ == "__main__":
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else DOWNLOADS
    missing = bring(load_material(), destination)
    print(f"The test material is in {destination}; {missing} files could not be downloaded.")
    sys.exit(missing > 0)
