"""The mark of a folder or bucket as an export's destination, so that nothing is overwritten; and the summary."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

from framekiln.contract.errors import OutputError, without_secrets
from framekiln.contract.words import counted
from framekiln.export.request import CLIPS, ExportRequest
from framekiln.export.splits import Chosen
from framekiln.output.object_store import Store
from framekiln.output.publisher import TEMPORARY


@dataclass(frozen=True, kw_only=True)
class ExportSummary:
    """The result of an export."""

    to: str  # the format
    destination: str
    images: Mapping[str, int]  # by split; for the format clips, the clips
    annotations: Mapping[str, int]  # by kind; for tracks, their boxes
    tracks: int = 0  # number of different tracks
    left_out: Mapping[str, int] = field(default_factory=dict)  # chosen frames by the column that no step computed there
    sources: tuple[str, ...] = ()  # columns and tables that it was made of, and chosen by
    warnings: tuple[str, ...] = ()  # sentences on `left_out`, and how to keep these frames
    notes: tuple[str, ...] = ()  # sentences: what was left out, what the format could not hold, and that nothing leaks

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        yield from self.warnings
        splits = ", ".join(f"{name} {count:,}" for name, count in self.images.items())
        kinds = ", ".join(self._describe(*item) for item in self.annotations.items()) or "no annotations"
        number = sum(self.images.values())
        what = counted(number, "clip" if self.to == CLIPS else "image")
        yield f"{what} ({splits}){'' if self.to == CLIPS else f', {kinds}'}: {self.destination}"
        yield from self.notes

    def _describe(self, kind: str, count: int) -> str:
        if kind != "tracks":
            return f"{count:,} {kind}"
        boxes, tracks = "box" if count == 1 else "boxes", "track" if self.tracks == 1 else "tracks"
        return f"{count:,} {boxes} of {self.tracks:,} {tracks}"


RECORD = "export.json"
"""The file that describes the export; it marks a folder as one that an export may write into."""
Progress = Callable[[int, int], None]
"""Called with the numbers of finished and of all frames."""


def prepare(destination: Store, request: ExportRequest, store: Store, chosen: Chosen) -> dict[str, object]:
    """Check that an export may write into a destination, mark it, and return the mark.

    Raises OutputError: it holds something else, or another export.
    """
    facts = json.dumps(asdict(request), default=sorted)
    frames = blake2b(repr([(name, sorted(chosen[name])) for name in sorted(chosen)]).encode(), digest_size=16)
    record: dict[str, object] = {"output": without_secrets(store.root), "request": json.loads(facts)}
    record["frames"] = frames.hexdigest()
    destination.check_folder()
    if destination.exists(RECORD):
        earlier = destination.read_json(RECORD)
        is_used = "summary" in earlier or destination.names("") != [RECORD] or destination.folders()
        if is_used and {key: earlier.get(key) for key in record} != record:
            raise OutputError(
                f"{destination.root!r} holds another export or one of other frames, as {RECORD} there says; choose "
                "another folder, or delete it.",
                code="FK-EXPORT-OTHER",
            )
        if destination.appends and "summary" not in earlier:
            for path in destination.folder.rglob(f"{TEMPORARY}*"):  # of an export that was killed
                path.unlink(missing_ok=True)
    elif destination.names("") or destination.folders():
        raise OutputError(
            f"{destination.root!r} holds files that no export wrote; choose an empty or a new folder.",
            code="FK-EXPORT-NOT-EMPTY",
        )
    destination.prepare()
    destination.write(RECORD, json.dumps(record, indent=1).encode())
    return record


def finish(destination: Store, record: dict[str, object], summary: ExportSummary) -> ExportSummary:
    """Write the summary beside the mark, and return it."""
    destination.write(RECORD, json.dumps({**record, "summary": asdict(summary)}, indent=1).encode())
    return summary
