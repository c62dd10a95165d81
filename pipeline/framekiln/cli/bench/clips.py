"""`framekiln bench MODEL --clip 1080p,4k`: a model inside of a clip's whole way, from decoding to encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from framekiln.cli.bench.files import measuring
from framekiln.cli.options import clip_option, names
from framekiln.contract.errors import check_known
from framekiln.reporting.terminal.console import DENSE, print_line, show_table

if TYPE_CHECKING:
    from framekiln.api.bench import BenchFiles
    from framekiln.api.bench_options import CellOptions
    from framekiln.lab.clips.formats import Clip
    from framekiln.lab.clips.measure import ClipRow, ClipSettings


@dataclass(frozen=True, kw_only=True)
class ClipOptions:
    """Options of a clip's way."""

    clip: Annotated[
        str, clip_option(metavar="CLIP[,CLIP]", help="Of 1080p, 4k and stereo, which are made, or video files.")
    ] = ""
    stereo: Annotated[bool, clip_option("--stereo", help="Files show two eyes side by side, each an item.")] = False
    scenario: Annotated[str, clip_option(help="Of single, multi, server, offline.")] = "single"
    clip_frames: Annotated[
        int | None,
        clip_option(min=1, help="Frames of each measurement. [dim]Default: 120, or as many as --target needs.[/dim]"),
    ] = None
    streams: Annotated[int, clip_option(min=1, help="Streams of multi; largest batch of server and offline.")] = 8
    rate: Annotated[float, clip_option(min=0.01, help="Requests a second of server, at random times.")] = 30.0
    linger_ms: Annotated[float, clip_option(min=0.0, help="Wait of server for a fuller batch.")] = 0.0
    pools: Annotated[Literal["on", "off", "both"], clip_option(help="Keep buffers from batch to batch.")] = "on"

    def settings(self, cells: CellOptions, target: str = "") -> ClipSettings:
        """Return what is measured. Raises ConfigError if a scenario or a target is unknown."""
        from framekiln.api.bench_options import bench_plan
        from framekiln.lab.clips.formats import SCENARIOS, Load
        from framekiln.lab.clips.measure import ClipSettings
        from framekiln.lab.samples import calls_needed, parse_targets

        asked, plan = names(self.scenario), bench_plan(cells)
        for name in asked:
            check_known(name, SCENARIOS, f"--scenario: there is no {name!r}.", code="FK-BENCH-SCENARIO")
        needed = calls_needed(parse_targets(target), self.clip_frames, "--clip-frames")
        frames = self.clip_frames or max(Load.frames, needed)
        load = Load(frames=frames, batch=self.streams, rate=self.rate, linger_s=self.linger_ms / 1000)
        return ClipSettings(
            scenarios=tuple(name for name in SCENARIOS if name in asked),
            pools={"on": (True,), "off": (False,), "both": (True, False)}[self.pools],
            load=load,
            cell=plan.first_cell,
            device=plan.measure.device,
        )

    def clips(self, folder: Path) -> list[Clip]:
        """Return the clips, made ones in a folder. Raises InputError if a file cannot be decoded."""
        from framekiln.lab.clips.formats import FORMATS, clip_of_file, made_clip

        return [
            made_clip(FORMATS[name], folder) if name in FORMATS else clip_of_file(Path(name), 1 + self.stereo)
            for name in names(self.clip)
        ]


def bench_clips(
    console: Console, models: Sequence[str], cells: CellOptions, clips: ClipOptions, files: BenchFiles
) -> None:
    """Measure all models on all clips, and write and compare the figures.

    Raises:
        ConfigError: a model, a scenario or a target is unknown, a model cannot be built, or nothing was measured.
        InputError: a clip cannot be decoded.
        OutputError: a file cannot be written.
        Exit: a condition is met, or a target is not.
    """
    from framekiln.api.bench_options import bench_plan
    from framekiln.lab.clips.formats import Load
    from framekiln.lab.clips.measure import measure_clips
    from framekiln.lab.models.registry import find_model
    from framekiln.planning.manifest import read_pipeline

    settings = clips.settings(cells, files.target)
    recipes = [find_model(name, read_pipeline(None), bench_plan(cells).weights_dir) for name in models]
    rows: list[ClipRow] = []
    if clips.clip_frames is None and settings.load.frames > Load.frames:
        print_line(console, f"{settings.load.frames} frames of each clip, for --target {files.target}.")

    def figures() -> dict[str, Any]:
        return {"extra": {"clips": [asdict(row) for row in rows]}}

    with measuring(console, settings.device, files, rows, figures) as folder:
        made = clips.clips(folder)
        for recipe in recipes:
            print_line(console, f"\n{recipe.name}, weights {recipe.weights}")
            first = len(rows)
            rows.extend(measure_clips(recipe.name, recipe.weights, recipe.build(), made, settings))
            _print(console, rows[first:])


def _print(console: Console, rows: Sequence[ClipRow]) -> None:
    from framekiln.reporting.bench.tables import clips_table

    show_table(console, clips_table(rows), title=False, whole=("clip", "scenario"), padding=DENSE)
    for row in rows:
        inside = [f"{name} {share:.0%}" for name, share in row.shares.items()]
        pools = "" if row.pools else ", no pools"
        said = ", ".join(inside if row.outcome == "ok" else [row.outcome, row.why])
        print_line(console, f"{row.clip}, {row.scenario}{pools}: {said}")
