"""The work of `framekiln fetch`: find an entry on this machine, or download it from its sources in order.

A file enters the cache only when it is complete and its hash matches. Until then its beginning lies in `.partial/`,
which no search for weights enters. Runs never call this module.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from framekiln.contract.errors import WeightsError
from framekiln.weights.checksums import atomic_file, sha256
from framekiln.weights.download import ProgressCallback, UnreachableError, download
from framekiln.weights.lockfile import Bundle, Local, Member, NotFetchedError, Url, WeightsEntry, Wheel
from framekiln.weights.resolver import cache_folder, extract_to_cache, locate, search_folders

_PARTIAL = ".partial"  # two levels above its files, so that no search for weights sees them


def fetch(
    entry: WeightsEntry, *, weights_dir: Path | None = None, on_progress: ProgressCallback = lambda *_: None
) -> Path:
    """Return the verified local file of an entry, downloaded into the cache if this machine lacks it.

    Several processes may fetch one entry at once: one downloads it, and the others wait for its file.
    Raises WeightsError: no source has it; one sentence names the failure of each.
    """
    if path := _find_local(entry, weights_dir):
        return path
    with _lock(entry) as folder:
        return _find_local(entry, weights_dir) or _try_sources(entry, folder, on_progress)


def _find_local(entry: WeightsEntry, weights_dir: Path | None) -> Path | None:
    """Return the verified local file of an entry; None if it is missing or another file has its name."""
    search_folders(weights_dir)  # raises where a folder that the user gave does not exist
    try:
        return locate(entry, weights_dir=weights_dir)
    except WeightsError:
        return None


def copy_to(entry: WeightsEntry, path: Path, folder: Path) -> Path:
    """Put a verified copy, under the entry's own file name, into a folder for machines without network.

    Raises WeightsError: the folder is not writable, or the copy differs from its source.
    """
    target = folder / entry.file
    try:
        if target.exists() and sha256(target, cache_folder()) == entry.sha256:
            return target
        with atomic_file(target) as copy:
            shutil.copyfile(path, copy)
            if sha256(copy, cache_folder(), use_cache=False) != entry.sha256:
                message = f"The copy of {entry.file} in {folder} differs from {path}; the disk may be failing."
                raise WeightsError(message, code="FK-COPY-DIFFERS")
            copy.chmod(0o644)  # temporary files are private to their user; others must read this one
    except OSError as error:
        message = f"{folder} is not writable ({error.strerror}); choose another with --to."
        raise WeightsError(message, code="FK-FOLDER-NOT-WRITABLE") from error
    return target


def verify(entry: WeightsEntry, weights_dir: Path | None = None) -> Path | None:
    """Return the local file of an entry after hashing it again without the cache; None if it is missing.

    Raises WeightsError: the file differs from the lockfile.
    """
    path = locate(entry, weights_dir=weights_dir)
    if path is not None and (digest := sha256(path, cache_folder(), use_cache=False)) != entry.sha256:
        raise WeightsError(
            f"{path} has changed: its sha256 is {digest}, the lockfile has {entry.sha256}. Remove it and fetch again.",
            code="FK-WEIGHTS-MISMATCH",
        )
    return path


@contextlib.contextmanager
def _lock(entry: WeightsEntry) -> Iterator[Path]:
    """Yield the entry's own folder under `.partial/`, to one process at a time."""
    folder = cache_folder() / _PARTIAL / entry.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire()
    except OSError as error:
        message = f"{cache_folder()} is not writable ({error.strerror}); point XDG_CACHE_HOME elsewhere."
        raise WeightsError(message, code="FK-CACHE-NOT-WRITABLE") from error
    try:
        yield folder
    finally:
        lock.release()


def _try_sources(entry: WeightsEntry, folder: Path, on_progress: ProgressCallback) -> Path:
    failures: list[str] = []
    offline = False
    for source in entry.sources:
        if not isinstance(source, Local):
            on_progress(entry.name, 0, entry.bytes)
        try:
            match source:
                case Url(url=url):
                    return _download(entry, url, folder, on_progress)
                case Bundle() | Member():
                    return extract_to_cache(entry, source, _download_wheel(source, folder))
                case Local(note=note):
                    failures.append(f"it has no download of its own ({note}), so put it into {cache_folder()}")
        except WeightsError as error:
            failures.append(str(error).rstrip("."))
            offline |= isinstance(error, UnreachableError)
        except OSError as error:  # a full disk, or a cache of mixed permissions
            failures.append(f"{cache_folder()} is not writable ({error.strerror})")
    reasons = {entry.name: "; ".join(dict.fromkeys(failures))}
    raise NotFetchedError(reasons, offline=offline, code="FK-FETCH-FAILED")


def _download(entry: WeightsEntry, url: str, folder: Path, on_progress: ProgressCallback) -> Path:
    part = folder / f"{entry.sha256[:16]}.part"  # named by hash: an older version is never resumed
    download(entry, url, part, on_progress)
    target = cache_folder() / entry.file
    part.replace(target)
    return target


def _download_wheel(source: Wheel, folder: Path) -> Path:
    """Download a wheel from the package registry that pip is configured for, and keep it in the cache."""
    requirement = f"{source.package}=={source.version}"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "-q", "--dest", name]
        command = [sys.executable, "-m", "pip", "download", *options, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = next(Path(name).glob(source.wheels), None)
        if done.returncode or wheel is None:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no error message"]
            reason = lines[-1].removeprefix("ERROR: ").rstrip(".")
            message = f"pip could not download {requirement} ({reason})"
            raise UnreachableError(message, code="FK-SOURCE-UNREACHABLE")
        return Path(shutil.move(wheel, cache_folder() / wheel.name))
