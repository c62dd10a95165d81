"""An output as Python reads it: tables, frames, report and profile. Nothing is read before it is needed."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from framekiln.api import html
from framekiln.api.options import Place, shows
from framekiln.api.output_options import ExportOptions, SelectOptions, make_export_request, make_selection_request
from framekiln.api.summary import Summary, find_random, read_profile, warn_of_random
from framekiln.contract.columns import PLACES, SOURCE, Image, is_pixel_column
from framekiln.contract.errors import ConfigError, InputError, UserError, check_known, without_secrets
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.contract.row_errors import ERRORS_SCHEMA, PASSED_OVER
from framekiln.output.kept_tables import KeptTables
from framekiln.output.object_store import Store
from framekiln.output.recognise import check_is_output, later_tables
from framekiln.planning.expression import without_halves
from framekiln.reporting.kit.texts import plain_table
from framekiln.reporting.plan_facts import rebuild
from framekiln.runtime.run.progress import LATER, unfinished
from framekiln.runtime.run.record import read_earlier, read_run_record
from framekiln.selection.request import list_selections

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from framekiln.export.destination import ExportSummary, Progress
    from framekiln.profiling.run_profile import RunProfile
    from framekiln.selection.selection import Selection

_ALWAYS = {FRAMES: pa.schema([*SOURCE, *PLACES]), ERRORS: ERRORS_SCHEMA}
"""Tables of every output, with the columns that an empty one has."""
_RUN = ("state", "reason", "files", "files_done", "frames", "passed_over", "seconds", "engine")
_TOLD = (*_RUN, "skipped", "fetch", "fetch_mb", "notes", "figures")
"""Keys of run.json."""


class Output:
    """The output of one run or more, read only.

    >>> frames = output.table("frames").to_table(columns=["media_id", "crc"])
    >>> frames.num_rows
    36
    >>> output.frame("zz.png", 29).shape
    (8, 8, 3)
    """

    def __init__(self, path: Place) -> None:
        self._store = Store(os.fspath(path))

    @property
    def path(self) -> str:
        """The absolute path of the folder, or its URL."""
        return self._store.root

    @property
    def record(self) -> Mapping[str, Any]:
        """The run.json of the run that wrote the tables: its figures, and everything needed to repeat it.

        Raises ConfigError: there is none, it cannot be read, or another version wrote it.
        """
        return read_run_record(self._store)

    @property
    def summary(self) -> Summary:
        """Files, frames, errors by kind, seconds, skipped steps, and whether the run in `record` is finished."""
        record = self.record
        return Summary.of(record, unfinished(self._store, record))

    def to_dict(self) -> dict[str, Any]:
        """Return the last run as `framekiln run --json` prints it, finished or not (docs/commands.md).

        >>> output.to_dict()["tables"]["frames"]
        36
        """
        own = self.record.get(LATER) or self.record
        rows = self.errors.to_table(columns=["step", "kind"]).to_pylist()
        found = Counter((row["step"], row["kind"]) for row in rows if row["kind"] != PASSED_OVER)
        return {
            "output": without_secrets(self.path),
            **{key: own.get(key) for key in _TOLD},
            "random": own.get("dummies"),
            "errors": [{"step": step, "kind": kind, "count": count} for (step, kind), count in found.most_common()],
            "tables": {name: self.table(name).count_rows() for name in self.tables},
        }

    @property
    def tables(self) -> list[str]:
        """Names of all tables: `frames`, `errors`, and the tables of the second pass."""
        return [*_ALWAYS, *later_tables(self._store)]

    def table(self, name: str) -> "Dataset":
        """Return a table; columns and rows are read on request.

        `.to_table(columns=..., filter=...)` reads it into Arrow, from there `.to_pandas()`; DuckDB and Polars
        (`polars.scan_pyarrow_dataset`) take it as it is. Embeddings are read as float32, since DuckDB takes no float16.

        Raises ConfigError: there is no such table.
        """
        problem = f"There is no table {name!r} in {self.path!r}."
        check_known(name, self.tables, problem, code="FK-UNKNOWN-TABLE")
        return self._store.dataset(name, _ALWAYS.get(name, pa.schema([])), without_halves)

    @property
    def errors(self) -> "Dataset":
        """The table `errors`: files and rows that could not be read or computed, and why."""
        return self.table(ERRORS)

    def frame(self, media_id: str, frame_index: int = 0, *, pixels: str = "frame") -> Image:
        """Return a frame as the stages saw it: an array (h w 3, RGB uint8).

        It is decoded again from the file, by the rules of the run.

        Args:
            media_id: the file's id, as in the tables.
            frame_index: the frame's number, as in the tables; 0 for a photo.
            pixels: `frame` for full size, `frame_224` for a short side of 224 pixels or a little more.

        Raises:
            ConfigError: the output has no such file, or `pixels` is no name of pixels.
            InputError: the file was moved or changed since the run, or has no such frame.
            MediaError: the file cannot be opened any more.
        """
        if not is_pixel_column(pixels):
            problem = f"pixels: {pixels!r} is neither 'frame' nor such as 'frame_224'."
            raise ConfigError(problem, code="FK-INVALID-SETTING")
        from framekiln.export.pictures import find_originals, read_rules
        from framekiln.media.packets.decode import decode_frames  # loads the decoders

        media = find_originals(self._store, [media_id])[media_id]
        for frame in decode_frames(media, (pixels,), read_rules(self.record), wanted=(frame_index,)):
            return frame.images[pixels]
        problem = f"The run kept no frame {frame_index} of {media_id!r}; the table `frames` lists its frames."
        raise InputError(problem, code="FK-NO-SUCH-FRAME")

    @shows(SelectOptions)
    def select(self, **options: Unpack[SelectOptions]) -> "Selection":
        """Return the frames that meet all conditions. They are applied in the order of the options.

        Expressions are DuckDB's SQL over the columns of `frames` and three more. `shot` is the number of the shot.
        `duplicate` is true if `duplicates` keeps another copy. `scene` is the first photo of a photo's scene, or the
        file of other media. `notes` of the selection say what may be missing.

        Args:
            options: where, unique, per such as `{"shot": 1}` (frames without a value are left out), balance, diverse,
                order, limit: see `framekiln.api.output_options`.

        Raises:
            ConfigError: an expression or a value is wrong, or the output lacks a requested column or table.

        >>> few = output.select(where="media_type = 'photo'", order="crc", limit=2)
        >>> len(few), few.to_arrow(["media_id"]).num_rows
        (2, 2)
        """
        from framekiln.selection.selection import select

        chosen = select(self._store, make_selection_request(options))
        return replace(chosen, notes=[*_describe_doubts(self._store, chosen), *chosen.notes])

    @property
    def selections(self) -> list[str]:
        """Names of saved selections."""
        return list_selections(self._store)

    def selection(self, name: str) -> "Selection":
        """Return a saved selection. Raises ConfigError: there is none of that name."""
        from framekiln.selection.selection import read_selection

        return read_selection(self._store, name)

    @shows(ExportOptions)
    def export(
        self, to: str, destination: Place, *, progress: "Progress | None" = None, **options: Unpack[ExportOptions]
    ) -> "ExportSummary":
        """Write frames and their annotations in the format of another tool, or cut videos into clips.

        Args:
            to: the format: coco, yolo, cvat, labelstudio, mot, folder, webdataset, hf, lance or clips.
            destination: an empty folder or URL, or one in which the same export was stopped.
            progress: called with the numbers of finished and of all frames, or clips.
            options: selection or where, include, images, split, by, keypoints, folders and shard_rows. For clips: of,
                cut, min_seconds, max_seconds and columns. `framekiln.api.output_options` describes them.

        Raises:
            ConfigError: an option is wrong, the format or the output lacks what it needs, or no frame is chosen.
            InputError: a file was moved or changed since the run.
            OutputError: the destination holds something else, or cannot be written.
            FramekilnError: no clip could be cut.
        """
        from framekiln.export.export import export

        to_store, request = Store(os.fspath(destination)), make_export_request(to, options)
        summary = export(self._store, to_store, request, progress)
        record = read_earlier(self._store) or {}
        return replace(summary, notes=(*summary.notes, *warn_of_random(find_random(record, summary.sources))))

    def report(self, run: str | None = None, *, again: bool = False) -> str:
        """Return the path or URL of report.html. A missing report is written.

        Args:
            run: the run to take times from; the report is then written again. None: the run that did most.
            again: write it again in any case.

        Raises:
            OutputError: no run has finished there, or there are no records of that run.
            GoneError: another run is replacing tables at this moment.
        """
        from framekiln.reporting.html import NAME, write_report

        store = self._store.check_folder()
        if again or run is not None or not store.exists(NAME):
            with KeptTables(store.root) as tables:
                return write_report(tables, run)
        return store.url(NAME)

    def profile(self, run: str | None = None) -> "RunProfile":
        """Return rates, calls, waits and the bottleneck of a run. Default: the run with the most work.

        Raises OutputError: there are no records of that run, or none of its rows has passed a step.
        """
        return read_profile(self._store, run)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def __str__(self) -> str:
        return "\n".join([*self._list_lines(), f"Report: {self._store.url('report.html')}"])

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: the summary, and each table with its rows."""
        rows = [(name, self.table(name).count_rows()) for name in self.tables]
        table = plain_table("Tables", ("table", "rows"), rows)
        return html.lines([self.path, *self._list_lines()]) + html.table(table)

    def _list_lines(self) -> Iterator[str]:
        try:
            yield from self.summary.lines()
        except UserError as error:
            yield str(error)


def open_output(output: Place) -> Output:
    """Open an output of earlier runs, on a disk or in a bucket.

    Raises:
        OutputError: there is no folder, or it is no output.

    >>> import framekiln
    >>> framekiln.open("no/such/folder")
    Traceback (most recent call last):
    ...
    framekiln.contract.errors.OutputError: There is no folder '...'; give the output of a run.
    """
    check_is_output(Store(os.fspath(output)))
    return Output(output)


def _describe_doubts(store: Store, chosen: "Selection") -> Iterator[str]:
    """Yield sentences on random weights, and on tables with missing rows after an unfinished or partial run."""
    if (record := read_earlier(store)) is None:
        return
    if (cut := unfinished(store, record)) is not None:
        yield cut.sentence
    yield from warn_of_random(find_random(record, chosen.sources))
    stages = rebuild(record["steps"])
    written = {FRAMES, ERRORS, *(name for stage in stages.values() for name in stage.tables)}
    left = sorted(set(chosen.tables) - written) if len(stages) == len(record["steps"]) else ()
    if left:
        yield f"Files may be missing, since the last run lacks the steps that write these tables: {', '.join(left)}."
