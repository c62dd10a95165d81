"""`framekiln bench MODEL --clip 1080p,4k`: a model inside of a clip's whole way, from decoding to encoding."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from framekiln.api.bench import BenchFiles
from framekiln.api.bench_options import CellOptions, bench_plan
from framekiln.cli.bench.files import measuring
from framekiln.cli.bench.options import ClipOptions
from framekiln.cli.options import names
from framekiln.contract.errors import check_known
from framekiln.lab.clips.formats import FORMATS, SCENARIOS, Clip, Load, clip_of_file, made_clip
from framekiln.lab.clips.measure import ClipRow, ClipSettings, measure_clips
from framekiln.lab.models.registry import find_model
from framekiln.lab.samples import calls_needed, parse_targets
from framekiln.planning.manifest import read_pipeline
from framekiln.reporting.bench.tables import clips_table
from framekiln.reporting.terminal.console import DENSE, print_line, show_table


def clip_settings(options: ClipOptions, cells: CellOptions, target: str = "") -> ClipSettings:
    """Return what is measured. Raises ConfigError if a scenario or a target is unknown."""
    asked, plan = names(options.scenario), bench_plan(cells)
    for name in asked:
        check_known(name, SCENARIOS, f"--scenario: there is no {name!r}.", code="FK-BENCH-SCENARIO")
    needed = calls_needed(parse_targets(target), options.clip_frames, "--clip-frames")
    frames = options.clip_frames or max(Load.frames, needed)
    load = Load(frames=frames, batch=options.streams, rate=options.rate, linger_s=options.linger_ms / 1000)
    return ClipSettings(
        scenarios=tuple(name for name in SCENARIOS if name in asked),
        pools={"on": (True,), "off": (False,), "both": (True, False)}[options.pools],
        load=load,
        cell=plan.first_cell,
        device=plan.measure.device,
    )


def _find_clips(options: ClipOptions, folder: Path) -> list[Clip]:
    """Return the clips, made ones in a folder. Raises InputError if a file cannot be decoded."""
    return [
        made_clip(FORMATS[name], folder) if name in FORMATS else clip_of_file(Path(name), 1 + options.stereo)
        for name in names(options.clip)
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
    settings = clip_settings(clips, cells, files.target)
    recipes = [find_model(name, read_pipeline(None), bench_plan(cells).weights_dir) for name in models]
    rows: list[ClipRow] = []
    if clips.clip_frames is None and settings.load.frames > Load.frames:
        print_line(console, f"{settings.load.frames} frames of each clip, for --target {files.target}.")

    def figures() -> dict[str, Any]:
        return {"extra": {"clips": [asdict(row) for row in rows]}}

    with measuring(console, settings.device, files, rows, figures) as folder:
        made = _find_clips(clips, folder)
        for recipe in recipes:
            print_line(console, f"\n{recipe.name}, weights {recipe.weights}")
            first = len(rows)
            rows.extend(measure_clips(recipe.name, recipe.weights, recipe.build(), made, settings))
            _print(console, rows[first:])


def _print(console: Console, rows: Sequence[ClipRow]) -> None:

    show_table(console, clips_table(rows), title=False, whole=("clip", "scenario"), padding=DENSE)
    for row in rows:
        inside = [f"{name} {share:.0%}" for name, share in row.shares.items()]
        pools = "" if row.pools else ", no pools"
        said = ", ".join(inside if row.outcome == "ok" else [row.outcome, row.why])
        print_line(console, f"{row.clip}, {row.scenario}{pools}: {said}")
