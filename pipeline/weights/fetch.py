"""Weights that come by themselves: one command brings what a run needs, and a run itself never touches the network.

A file is sought on this machine first, then at its sources in the lockfile's order. It lies in the cache only when it
is whole and its hash is right; until then its beginning waits in `.partial/`, where nobody looks for weights.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from pipeline.errors import WeightsError
from pipeline.weights.digest import sha256
from pipeline.weights.download import UnreachableError, Watch, download
from pipeline.weights.locate import assembled, cache_folder, folders, locate
from pipeline.weights.lock import Bundle, Entry, Local, Member, Url, Wheel

_DEAD_SECONDS = 600.0  # since a copy under way last wrote; the slowest stick writes each second
_PARTIAL = ".partial"  # two levels above its files, so that no search for weights sees them


def fetch(entry: Entry, *, weights_dir: Path | None = None, watch: Watch = lambda *_: None) -> Path:
    """The verified local file of an entry, brought into the cache where this machine does not have it.

    Any number of processes may ask for one entry at once: one brings it, the others wait and find it.

    Args:
        entry: of the lockfile.
        weights_dir: a folder to look in before the others.
        watch: told how far a download is.

    Raises:
        WeightsError: no source has it; one sentence says what each answered.
    """
    if path := at_hand(entry, weights_dir):
        return path
    with _alone(entry) as place:
        return at_hand(entry, weights_dir) or _from_sources(entry, place, watch)


def at_hand(entry: Entry, weights_dir: Path | None = None) -> Path | None:
    """The verified local file of an entry; None also where another file has its name.

    Raises:
        WeightsError: a folder that somebody named does not exist.
    """
    folders(weights_dir)
    try:
        return locate(entry, weights_dir=weights_dir)
    except WeightsError:
        return None


def carry(entry: Entry, path: Path, folder: Path) -> Path:
    """A verified copy in a folder that can be taken to a machine without network, under the entry's own file name.

    Raises:
        WeightsError: the folder cannot be written, or the copy differs from what was copied.
    """
    target = folder / entry.file
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if target.exists() and sha256(target, cache_folder()) == entry.sha256:
            return target
        _sweep(folder, entry)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{entry.file}.", delete=False) as file:
            temporary = Path(file.name)
        shutil.copyfile(path, temporary)
        if sha256(temporary, cache_folder(), remembered=False) != entry.sha256:
            raise WeightsError(f"The copy of {entry.file} in {folder} differs from {path}; the disk may be failing.")
        temporary.chmod(0o644)  # a temporary file is its maker's alone; this one is for other machines and people
        temporary.replace(target)
    except OSError as error:
        raise WeightsError(f"{folder} cannot be written ({error.strerror}); choose another with --to.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return target


def _sweep(folder: Path, entry: Entry) -> None:
    """Remove what copies left that were killed: gigabytes that nobody sees, on a stick that is then full."""
    for path in folder.glob(f".{entry.file}.*"):
        if time.time() - path.stat().st_mtime > _DEAD_SECONDS:
            path.unlink(missing_ok=True)


def verify(entry: Entry, weights_dir: Path | None = None) -> Path | None:
    """The local file of an entry after reading all of it again, whatever is remembered; None where there is none.

    Raises:
        WeightsError: the file is not what the lockfile says.
    """
    path = locate(entry, weights_dir=weights_dir)
    if path is not None and (digest := sha256(path, cache_folder(), remembered=False)) != entry.sha256:
        raise WeightsError(
            f"{path} has changed: its sha256 is {digest}, the lockfile says {entry.sha256}; remove it and fetch again."
        )
    return path


@contextlib.contextmanager
def _alone(entry: Entry) -> Iterator[Path]:
    """The entry's own folder under `.partial/`, for one process at a time."""
    place = cache_folder() / _PARTIAL / entry.name
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place / "lock")
        lock.acquire()
    except OSError as error:
        raise WeightsError(
            f"{cache_folder()} cannot be written ({error.strerror}); point XDG_CACHE_HOME elsewhere."
        ) from error
    try:
        yield place
    finally:
        lock.release()


def _from_sources(entry: Entry, place: Path, watch: Watch) -> Path:
    said: list[str] = []
    offline = False
    for source in entry.sources:
        if not isinstance(source, Local):
            watch(entry.name, 0, entry.bytes)
        try:
            match source:
                case Url(url=url):
                    return _downloaded(entry, url, place, watch)
                case Bundle() | Member():
                    return assembled(entry, source, _wheel(source, place))
                case Local(note=note):
                    said.append(f"it is not published as such ({note}), so put it into {cache_folder()}")
        except WeightsError as error:
            said.append(str(error).rstrip("."))
            offline |= isinstance(error, UnreachableError)
        except OSError as error:  # a full disk, or a cache that is half writable
            said.append(f"{cache_folder()} cannot be written ({error.strerror})")
    way = f"; offline, carry it over with `framemill fetch {entry.name} --to DIR` and --weights-dir DIR"
    raise WeightsError(f"{entry.name} could not be fetched: {'; '.join(said)}{way if offline else ''}.")


def _downloaded(entry: Entry, url: str, place: Path, watch: Watch) -> Path:
    part = place / f"{entry.sha256[:16]}.part"  # by its hash: the beginning of an older version is never continued
    download(entry, url, part, watch)
    target = cache_folder() / entry.file
    part.replace(target)
    return target


def _wheel(source: Wheel, place: Path) -> Path:
    """A wheel from the package registry that pip is set up for, kept in the cache as a source."""
    wanted = f"{source.package}=={source.version}"
    with tempfile.TemporaryDirectory(dir=place) as name:
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "-q", "--dest", name]
        command = [sys.executable, "-m", "pip", "download", *options, wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = next(Path(name).glob(source.wheels), None)
        if done.returncode or wheel is None:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it says nothing"]
            raise UnreachableError(f"pip could not download {wanted} ({lines[-1].removeprefix('ERROR: ').rstrip('.')})")
        return Path(shutil.move(wheel, cache_folder() / wheel.name))
