"""Search for weights on this machine, by content and not by file name.

Folders are searched in this order, each with its direct subfolders: --weights-dir, FRAMEKILN_WEIGHTS, the user's cache
folder. Then bundles are built from wheels in these folders: a package registry is the one source that most closed
networks mirror. The same members always give the same bytes (fixed order, times, padding), so the lockfile holds the
result's hash. Nothing here uses the network.
"""

import base64
import contextlib
import functools
import hashlib
import io
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from framekiln.contract.errors import ConfigError, WeightsError, check_known
from framekiln.contract.shipped_files import shipped
from framekiln.contract.user_files import expand
from framekiln.weights import lockfile
from framekiln.weights.checksums import atomic_file, cache_root, sha256
from framekiln.weights.lockfile import Bundle, Member, WeightsEntry, Wheel

ENVIRONMENT = "FRAMEKILN_WEIGHTS"


@functools.cache
def default_lock() -> Mapping[str, WeightsEntry]:
    """Return the shipped lockfile."""
    return lockfile.load_lock(shipped("models.yaml"))


def merged_lock(models: Mapping[str, WeightsEntry]) -> Mapping[str, WeightsEntry]:
    """Return the shipped entries and those of a pipeline file.

    Raises ConfigError: a name is in both; WeightsError: two entries share a file name.
    """
    shipped = default_lock()
    for name in models.keys() & shipped.keys():
        raise ConfigError(
            f"models: the shipped lockfile has an entry {name!r} already; rename yours.", code="FK-WEIGHTS-NAME-TAKEN"
        )
    merged = {**shipped, **models}
    lockfile.check_file_names(merged, "models")
    return merged


def cache_folder() -> Path:
    """Return the folder of downloads and bundles, e.g. ~/.cache/framekiln/weights; it need not exist."""
    return cache_root() / "weights"


def resolve(
    names: Sequence[str], *, weights_dir: Path | None = None, lock: Mapping[str, WeightsEntry] | None = None
) -> dict[str, Path]:
    """Return the verified local paths of the named entries of a lockfile, by default the shipped one.

    A folder `weights_dir` is searched before the others.

    Raises ConfigError: the lockfile has no such entry. Raises WeightsError: files are missing or wrong; one message
    lists all, with sizes, licences and fixes.
    """
    paths, problems = find_weights(names, weights_dir=weights_dir, lock=lock)
    if problems:
        message = lockfile.explain_missing({_find_entry(name, lock): text for name, text in problems.items()})
        raise WeightsError(message, code="FK-WEIGHTS-MISSING")
    return paths


def find_weights(
    names: Sequence[str], *, weights_dir: Path | None, lock: Mapping[str, WeightsEntry] | None = None
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the verified local paths of the entries, and by name a sentence for each missing or wrong one.

    Raises ConfigError: the lockfile has no such entry. Raises WeightsError: a folder given by the user does not exist.
    """
    search_folders(weights_dir)
    paths: dict[str, Path] = {}
    problems: dict[str, str] = {}
    for entry in [_find_entry(name, lock) for name in dict.fromkeys(names)]:
        try:
            path = locate(entry, weights_dir=weights_dir)
        except WeightsError as error:
            problems[entry.name] = str(error)
            continue
        if path is None:
            about = f"{entry.name}, {entry.bytes / 1e6:.1f} MB, licence {entry.licence}"
            problems[entry.name] = f"{entry.file} ({about}) is missing"
        else:
            paths[entry.name] = path
    return paths, problems


def with_stand_ins(
    names: Sequence[str], lock: Mapping[str, WeightsEntry], *, weights_dir: Path | None
) -> tuple[Mapping[str, WeightsEntry], tuple[str, ...]]:
    """Return a lockfile in which present files replace missing ones among `names`, for the same task.

    Also return a sentence for each replacement.
    """
    paths, _ = find_weights(names, weights_dir=weights_dir, lock=lock)
    missing = [name for name in dict.fromkeys(names) if name not in paths]
    changed, notes = dict(lock), []
    for other in lock.values():
        if other.stands_in_for in missing and changed[other.stands_in_for] == lock[other.stands_in_for]:
            present, _ = find_weights([other.name], weights_dir=weights_dir, lock=lock)
            if present:
                changed[other.stands_in_for] = other.model_copy(update={"name": other.stands_in_for})
                notes.append(f"{lock[other.stands_in_for].file} is missing; {other.file}, which is here, stands in.")
    return changed, tuple(notes)


def locate(entry: WeightsEntry, *, weights_dir: Path | None = None) -> Path | None:
    """Return the verified local file of one entry, or None if only the network could provide it.

    Raises WeightsError: another file has its name, a wheel is damaged, or a folder does not exist.
    """
    folders = search_folders(weights_dir)
    candidates = sorted(_list_candidates(folders), key=lambda path: path.name != entry.file)
    for path in candidates:
        with contextlib.suppress(OSError):  # not readable, or just removed
            if path.stat().st_size == entry.bytes and sha256(path, cache_folder()) == entry.sha256:
                return path
    for source in entry.sources:
        if isinstance(source, Bundle | Member) and (wheel := find_wheel(source, folders)):
            return extract_to_cache(entry, source, wheel)
    if candidates and candidates[0].name == entry.file:
        raise _explain_wrong_file(entry, candidates[0])
    return None


def check_unchanged(path: Path, entry: WeightsEntry) -> None:
    """Check that a loaded file is still the entry's: the plan verified it some time before.

    Raises WeightsError: the file has changed.
    """
    if sha256(path, cache_folder()) != entry.sha256:
        raise WeightsError(
            f"{path} was replaced since the run began: what was loaded may not be {entry.name}. Put the file back, "
            "then run the same command again.",
            code="FK-WEIGHTS-REPLACED",
        )


def _find_entry(name: str, lock: Mapping[str, WeightsEntry] | None) -> WeightsEntry:
    entries = default_lock() if lock is None else lock
    check_known(name, entries, f"The weights lockfile has no entry {name!r}.", code="FK-UNKNOWN-WEIGHTS")
    return entries[name]


def search_folders(weights_dir: Path | None) -> list[Path]:
    """Return the folders to search, in order. The cache may be absent; a folder of the user's may not.

    Raises WeightsError: a folder given by the user does not exist.
    """
    given = {"--weights-dir": str(weights_dir) if weights_dir else "", ENVIRONMENT: os.environ.get(ENVIRONMENT, "")}
    folders = []
    for option, value in given.items():
        folder = expand(value)
        if value and not os.path.isdir(folder):  # noqa: PTH112 - pathlib raises where the folder above is closed
            raise WeightsError(f"The folder {value!r} does not exist; check {option}.", code="FK-WEIGHTS-FOLDER")
        folders += [folder] if value else []
    return [*folders, cache_folder()]


def _list_candidates(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        for pattern in ("*", "*/*"):
            files = (path for path in folder.glob(pattern) if os.path.isfile(path))  # noqa: PTH113 - see above
            yield from sorted(path for path in files if not path.name.startswith("."))  # hidden: still being written


def extract_to_cache(entry: WeightsEntry, source: Bundle | Member, wheel: Path) -> Path:
    """Put the content of a wheel into the cache. Parallel processes write the same bytes atomically.

    Raises WeightsError: the wheel is damaged, its content differs from the lockfile, or the cache is not writable.
    """
    content = read_from_wheel(source, wheel)
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        message = f"{entry.name} from {wheel} has sha256 {digest}, the lockfile has {entry.sha256}. Remove the wheel."
        raise WeightsError(message, code="FK-WHEEL-MISMATCH")
    target = cache_folder() / entry.file
    try:
        with atomic_file(target) as file:
            file.write_bytes(content)
    except OSError as error:
        message = f"{target.parent} is not writable ({error.strerror}, {entry.file}); point XDG_CACHE_HOME elsewhere."
        raise WeightsError(message, code="FK-CACHE-NOT-WRITABLE") from error
    return target


def _explain_wrong_file(entry: WeightsEntry, path: Path) -> WeightsError:
    try:
        digest, size = sha256(path, cache_folder()), path.stat().st_size
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); make it readable, or remove it."
        return WeightsError(message, code="FK-WEIGHTS-UNREADABLE")
    return WeightsError(
        f"{path} is not {entry.name}: it has {size} bytes and sha256 {digest}, the lockfile has {entry.bytes} bytes "
        f"and {entry.sha256}. Remove it, or get it again.",
        code="FK-WEIGHTS-MISMATCH",
    )


_ALIGNMENT = 16  # of the data of a TFLite tensor: "force_align: 16" in tensorflow/compiler/mlir/lite/schema/schema.fbs
_PADDING_ID = 0xD935  # zip extra field that Android's zipalign uses for the same end
_LOCAL_HEADER = 30  # bytes of a zip member's header before its name; APPNOTE.TXT 4.3.7


def find_wheel(source: Wheel, folders: Sequence[Path]) -> Path | None:
    """Return the first wheel of the source in the folders."""
    return next((path for folder in folders for path in sorted(folder.glob(source.wheels))), None)


def read_from_wheel(source: Bundle | Member, wheel: Path) -> bytes:
    """Return the content that a source defines, read or built from its wheel.

    A bundle is an uncompressed zip with members at multiples of 16, so that they can be mapped in place.
    Raises WeightsError: the wheel cannot be read, lacks a member, or its member differs from the lockfile's.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            if isinstance(source, Member):
                return archive.read(source.member)
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
                for part in source.parts:
                    info = zipfile.ZipInfo(part.name)  # dated 1980-01-01
                    info.create_system = 3  # the same on every platform
                    padding = -(out.tell() + _LOCAL_HEADER + len(part.name.encode()) + 4) % _ALIGNMENT
                    info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
                    target.writestr(info, _patch(part, archive.read(part.member), wheel))
            return out.getvalue()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        message = f"{wheel} cannot be used: {error}. Remove it and download it again."
        raise WeightsError(message, code="FK-WHEEL-DAMAGED") from error


def _patch(part: lockfile.BundlePart, content: bytes, wheel: Path) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    if digest != part.sha256:
        message = f"{part.member} in {wheel} has sha256 {digest}, the lockfile has {part.sha256}. Remove the wheel."
        raise WeightsError(message, code="FK-WHEEL-MISMATCH")
    patched = bytearray(content)
    for patch in part.patches:
        new = bytes.fromhex(patch.hex)
        patched[patch.at : patch.at + len(new)] = new
    return bytes(patched) + base64.b64decode(part.append)
