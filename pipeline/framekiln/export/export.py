"""An export from end to end: rows, splits, pictures, and a format that writes them.

Pictures lie in images/SPLIT/NAME unless the format has other folders. Existing ones are not written again, so a killed
export continues.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import PurePosixPath

from framekiln.contract.errors import ConfigError, MediaError, check_known, without_secrets
from framekiln.contract.row_errors import Failure
from framekiln.export.annotation import PHOTO, ExportedImage
from framekiln.export.declared import Declared, read_declared
from framekiln.export.destination import ExportSummary, Progress, finish, prepare
from framekiln.export.formats import FORMATS, find_format
from framekiln.export.formats.base import Format
from framekiln.export.pictures import CROP, Pictured, PictureReader, open_pictures
from framekiln.export.request import BIOMETRIC, CLIPS, KINDS, ExportRequest
from framekiln.export.rows import BATCH, ExportRows
from framekiln.export.splits import Splits, make_splits
from framekiln.media.files import printable_path
from framekiln.media.images.stills import read_still
from framekiln.output.object_store import Store

_AT_ONCE = 8  # files: a bucket answers in some 50 ms, regardless of parallel requests


class Pictures:
    """Puts the pictures of images into a destination."""

    def __init__(self, reader: PictureReader, writer: Format, images: str) -> None:
        """Set the source of pictures, and the format that places them. `images`: as in the request."""
        self._reader, self._writer, self._images = reader, writer, images
        self._destination = writer.destination
        self._left_out = 0

    @property
    def notes(self) -> list[str]:
        return [f"{self._left_out:,} frames were left out: they are not readable any more."] if self._left_out else []

    def place(self, images: Sequence[ExportedImage]) -> Iterator[ExportedImage]:
        """Yield the images with their pictures' names and sizes; unreadable ones are left out."""
        if self._images == "none":  # a frame of a film has no file; its name is the one that it would get
            for image in images:
                own = image.media_type == PHOTO and (image.path or image.uri)
                yield replace(image, name=own or self._writer.name_of(image))
            return
        there = [self._find_done(image) for image in images]
        found = self._reader.read([image for image, done in zip(images, there, strict=True) if done is None])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            writing: list[Future[None]] = []
            for done in there:
                if done is not None:
                    yield done
                    continue
                pictures = next(found)
                if isinstance(pictures, Failure):
                    self._left_out += 1
                    continue
                for number, pictured in enumerate(pictures):
                    image = self._name(pictured, number)
                    path = self._writer.path_of(image, image.name)
                    writing.append(pool.submit(self._destination.write, path, pictured[1].data))
                    yield image
        for future in writing:
            future.result()

    def _name(self, pictured: Pictured, number: int) -> ExportedImage:
        """Return an image with its file's name. `number`: of the picture within its frame."""
        image, still = pictured
        kept = still.is_own and PurePosixPath(image.media_id).suffix
        suffix = f".{number}{still.ending}" if self._images == CROP else "" if kept else still.ending
        return replace(image, name=self._writer.name_of(image, suffix))

    def _find_done(self, image: ExportedImage) -> ExportedImage | None:
        """Return an image whose picture exists, or is linked now; None if it must be written."""
        if self._images == CROP or self._reader.config.fast_mode:  # their rows have a smaller size than photos
            return None
        if self._images == "link" and image.media_type == PHOTO and (linked := self._link(image)):
            return linked
        for suffix in dict.fromkeys(("" if self._images == "copy" else ".jpg", ".jpg", ".png")):
            name = self._writer.name_of(image, suffix)
            if self._destination.exists(self._writer.path_of(image, name)):
                return replace(image.resized(*self._reader.find_size(image)), name=name)
        return None

    def _link(self, image: ExportedImage) -> ExportedImage | None:
        """Link a photo that every reader shows alike; None if it must be encoded again, or is not on a disk."""
        media = self._reader.media[image.media_id]
        source = printable_path(media.path)
        with suppress(MediaError):
            own = read_still(media, self._reader.config.max_pixels, content=False) if source else None
            if own is not None and source:
                name = self._writer.name_of(image)
                link = self._destination.folder / self._writer.path_of(image, name)
                link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    link.symlink_to(source)
                return replace(image.resized(own.width, own.height), name=name)
        return None


def export(store: Store, destination: Store, request: ExportRequest, progress: Progress | None = None) -> ExportSummary:
    """Write the chosen frames of an output into a destination.

    Raises:
        ConfigError: the format is unknown or cannot hold what is asked for, the output lacks it, or no frame is chosen.
        OutputError: the destination holds something else, or cannot be written.
    """
    if request.to == CLIPS:
        from framekiln.export.clip_export import export_clips  # loads libav, which pictures do not need

        return export_clips(store, destination, request, progress)
    check_known(request.to, (*FORMATS, CLIPS), f"There is no format {request.to!r}.", code="FK-EXPORT-FORMAT")
    return _export_frames(store, destination, request, progress)


def _export_frames(
    store: Store, destination: Store, request: ExportRequest, progress: Progress | None
) -> ExportSummary:
    kind, declared = find_format(request.to), read_declared(store)
    kinds = choose_kinds(kind, declared, request)
    ways = choose_images(kind, destination, request, kinds)
    request = replace(request, include=kinds, images=ways)
    writer = kind(destination, request)
    rows = ExportRows(store, declared, request)
    chosen = rows.chosen
    reader = open_pictures(store, chosen, ways)
    splits = make_splits(store, request, chosen)
    writer.bind(reader, rows.types)
    record = prepare(destination, request, store, chosen)
    pictures = None if kind.holds_pictures else Pictures(reader, writer, ways)
    tally = Tally(splits.names)
    total = sum(map(len, chosen.values()))
    for done, batch in _read_images(rows, splits, writer, pictures):
        writer.write(batch)
        tally.add(batch)
        if progress is not None:
            progress(done, total)
    writer.end()
    summary = ExportSummary(
        to=request.to,
        destination=without_secrets(destination.root),
        images=dict(tally.images),
        annotations=dict(sorted(tally.annotations.items())),
        tracks=tally.tracks,
        left_out=dict(rows.left_out),
        sources=tuple(sorted(rows.sources | ({*rows.types.names} if writer.holds_rows else set()))),
        warnings=tuple(rows.warnings),
        notes=tuple(filter(None, [*splits.lines, *(pictures.notes if pictures else ()), *writer.notes])),
    )
    return finish(destination, record, summary)


def _read_images(
    rows: ExportRows, splits: Splits, writer: Format, pictures: Pictures | None
) -> Iterator[tuple[int, list[ExportedImage]]]:
    """Yield the number of frames read, and the last ones' images with their splits and pictures."""
    done, waiting = 0, list[ExportedImage]()
    for batch in chain(rows.read(), [[]]):  # a file of `frames/` may have a single row
        waiting += [replace(image, split=splits.of(image.media_id, image.frame_index)) for image in batch]
        if len(waiting) >= BATCH or not batch:
            done += len(waiting)
            own = writer.choose(waiting)
            yield done, list(pictures.place(own)) if pictures else own
            waiting = []


def choose_images(kind: type[Format], destination: Store, request: ExportRequest, kinds: frozenset[str]) -> str:
    """Return how pictures are exported: as requested; else linked, or copied into buckets and files that hold them.

    Raises ConfigError: the format or the destination cannot do what was requested.
    """
    images = request.images
    if images == CROP and "faces" not in kinds:
        message = f"--images {CROP} needs faces; add --include faces, with a format that holds them."
        raise ConfigError(message, code="FK-EXPORT-CROP")
    if images in ("link", "none") and kind.holds_pictures:
        message = (
            f"--images {images} leaves {request.to} without pictures, which its files hold; use copy or resize:1024."
        )
        raise ConfigError(message, code="FK-EXPORT-HOLDS")
    if images == "link" and not destination.appends:
        message = f"--images link needs a folder, and {destination.root!r} is in a bucket; use copy."
        raise ConfigError(message, code="FK-EXPORT-LINK")
    return images or ("link" if destination.appends and not kind.holds_pictures else "copy")


def choose_kinds(kind: type[Format], declared: Declared, request: ExportRequest) -> frozenset[str]:
    """Return the exported kinds.

    Raises ConfigError: the format cannot hold one, the output lacks it, or it needs another one.
    """
    there = declared.kinds()
    if request.include is None:
        found = (kind.default & there) - BIOMETRIC
        missing = kind.default if kind.needs_annotations and not found else frozenset[str]()
    else:
        found, missing = request.include, request.include - there
        foreign = sorted(found - kind.kinds)
        if foreign or (kind.needs_annotations and not found):
            problem = f"cannot hold {' and '.join(foreign)}" if foreign else "needs annotations"
            held = ", ".join(sorted(kind.kinds, key=KINDS.index))
            raise ConfigError(f"{request.to} {problem}; it holds {held}.", code="FK-EXPORT-KIND")
    if missing:
        has = f", it has {', '.join(sorted(there, key=KINDS.index))}" if there else " and nothing else to be exported"
        raise ConfigError(
            f"The output has no {' and no '.join(sorted(missing))}{has}; run the step that finds them.",
            code="FK-EXPORT-MISSING",
        )
    for name in sorted(found & BIOMETRIC):
        if (holders := declared.holders(name)) and holders.isdisjoint(found):
            fix = ",".join(sorted({*found, min(holders)}, key=KINDS.index))
            raise ConfigError(f"{name} need {' or '.join(sorted(holders))}; --include {fix}.", code="FK-EXPORT-KIND")
    return found


class Tally:
    """Counts images by split, annotations by kind, and different tracks."""

    def __init__(self, splits: Iterable[str]) -> None:
        self.images = Counter(dict.fromkeys(splits, 0))
        self.annotations = Counter[str]()
        self.tracks = 0
        self._media_id = ""
        self._seen: set[tuple[str, int]] = set()  # tracks of this file only, since there may be many in all

    def add(self, images: Sequence[ExportedImage]) -> None:
        """Count images. All images of a file come one after another."""
        self.images.update(image.split for image in images)
        for image in images:
            if image.media_id != self._media_id:
                self._media_id, self._seen = image.media_id, set()
            self.annotations.update(item.kind for item in image.annotations)
            found = {item.track for item in image.annotations if item.kind == "tracks" and item.track is not None}
            self.tracks += len(found - self._seen)
            self._seen |= found
