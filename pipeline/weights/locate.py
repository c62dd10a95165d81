"""Where the weights are on this machine: whatever a file is called, its content decides.

Looked through in order, each folder and its direct subfolders: the one given with --weights-dir, the one that
FRAMEMILL_WEIGHTS names, and the user's cache folder. Bundles are then put together from a wheel that lies in one of
them. Nothing here uses the network.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path

from pipeline.errors import ConfigError, WeightsError, did_you_mean
from pipeline.weights.advice import explain, missing
from pipeline.weights.bundle import assemble, find_wheel
from pipeline.weights.digest import sha256, write_whole
from pipeline.weights.lock import Bundle, Entry, Member, load_lock

ENVIRONMENT = "FRAMEMILL_WEIGHTS"


@functools.cache
def default_lock() -> Mapping[str, Entry]:
    """The lockfile that ships; `manifests/` lies beside `pipeline/` in a checkout and when installed."""
    return load_lock(Path(__file__).resolve().parents[2] / "manifests" / "models.yaml")


def fingerprint(name: str, *, lock: Mapping[str, Entry] | None = None) -> str:
    """The sha256 that stands for these weights wherever results depend on them.

    Raises:
        ConfigError: the lockfile has no such entry.
    """
    return _entry(name, lock).sha256


def cache_folder() -> Path:
    """Where bundles are put and downloads are kept, e.g. ~/.cache/framemill/weights; it need not exist."""
    return user_cache_path("framemill") / "weights"


def resolve(
    names: Sequence[str], *, weights_dir: Path | None = None, lock: Mapping[str, Entry] | None = None
) -> dict[str, Path]:
    """Verified local paths of the named entries.

    Args:
        names: keys of the lockfile.
        weights_dir: a folder to look in before the others.
        lock: entries by name; by default the lockfile that ships.

    Raises:
        ConfigError: the lockfile has no such entry.
        WeightsError: some are missing or wrong; one message tells all, with sizes, licences and what to do.
    """
    found, problems = search(names, weights_dir=weights_dir, lock=lock)
    if problems:
        raise WeightsError(explain({_entry(name, lock): said for name, said in problems.items()}, cache_folder()))
    return found


def search(
    names: Sequence[str], *, weights_dir: Path | None = None, lock: Mapping[str, Entry] | None = None
) -> tuple[dict[str, Path], dict[str, str]]:
    """Verified local paths of those entries that are at hand, and for each of the others a sentence that says why not.

    Raises:
        ConfigError: the lockfile has no such entry.
        WeightsError: a folder that somebody named does not exist.
    """
    folders(weights_dir)
    found: dict[str, Path] = {}
    problems: dict[str, str] = {}
    for entry in [_entry(name, lock) for name in dict.fromkeys(names)]:
        try:
            path = locate(entry, weights_dir=weights_dir, lock=lock)
        except WeightsError as error:
            problems[entry.name] = str(error)
            continue
        if path is None:
            problems[entry.name] = missing(entry)
        else:
            found[entry.name] = path
    return found, problems


def locate(entry: Entry, *, weights_dir: Path | None = None, lock: Mapping[str, Entry] | None = None) -> Path | None:
    """The verified local file of one entry, or None where it is not to be had without the network.

    Raises:
        WeightsError: a file of that name is there but is another one, a wheel is damaged, or a folder does not exist.
    """
    places = folders(weights_dir)
    candidates = sorted(_candidates(places), key=lambda path: path.name != entry.file)
    for path in candidates:
        with contextlib.suppress(OSError):  # somebody else's file, or one that was just removed
            if path.stat().st_size == entry.bytes and sha256(path, cache_folder()) == entry.sha256:
                return path
    for source in entry.sources:
        if isinstance(source, Bundle | Member) and (wheel := find_wheel(source, places)):
            return assembled(entry, source, wheel)
    if candidates and candidates[0].name == entry.file:
        raise WeightsError(_wrong(entry, candidates[0], lock))
    return None


def _entry(name: str, lock: Mapping[str, Entry] | None) -> Entry:
    entries = default_lock() if lock is None else lock
    if name not in entries:
        raise ConfigError(f"The weights lockfile has no entry {name!r}.{did_you_mean(name, entries)}")
    return entries[name]


def folders(weights_dir: Path | None) -> list[Path]:
    """The folders to look in, best first; the cache may be absent, one that somebody named may not.

    Raises:
        WeightsError: one that somebody named does not exist.
    """
    named = {"--weights-dir": str(weights_dir) if weights_dir else "", ENVIRONMENT: os.environ.get(ENVIRONMENT, "")}
    found = []
    for option, value in named.items():
        folder = Path(value).expanduser()
        if value and not folder.is_dir():
            raise WeightsError(f"There is no folder {value!r}; check {option}.")
        found += [folder] if value else []
    return [*found, cache_folder()]


def _candidates(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        for pattern in ("*", "*/*"):
            files = (path for path in folder.glob(pattern) if path.is_file())
            yield from sorted(path for path in files if not path.name.startswith("."))  # hidden: still being written


def assembled(entry: Entry, source: Bundle | Member, wheel: Path) -> Path:
    """What a wheel holds, put into the cache; two processes that do so at once write the same bytes, each whole.

    Raises:
        WeightsError: the wheel is damaged, gives other bytes than the lockfile says, or the cache cannot be written.
    """
    content = assemble(source, wheel)
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise WeightsError(
            f"{entry.name} put together from {wheel} has sha256 {digest}, not {entry.sha256} as the lockfile says."
        )
    target = cache_folder() / entry.file
    try:
        write_whole(target, content)
    except OSError as error:
        raise WeightsError(
            f"{entry.file} cannot be written to {target.parent} ({error.strerror}); point XDG_CACHE_HOME elsewhere."
        ) from error
    return target


def _wrong(entry: Entry, path: Path, lock: Mapping[str, Entry] | None) -> str:
    try:
        digest, size = sha256(path, cache_folder()), path.stat().st_size
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}); make it readable, or remove it."
    entries = (default_lock() if lock is None else lock).values()
    twin = next((other.name for other in entries if other.sha256 == digest), None)
    fix = f"It is {twin!r}: use that name" if twin else "Remove it, or get it again"
    return (
        f"{path} is not {entry.name}: it has {size} bytes and sha256 {digest}, the lockfile says {entry.bytes} bytes "
        f"and {entry.sha256}. {fix}."
    )
