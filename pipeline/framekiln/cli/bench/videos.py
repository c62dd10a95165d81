"""`framekiln bench MODEL --sav DIR`: models that follow objects through videos with true masks."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from framekiln.api.bench import BenchFiles
from framekiln.api.bench_options import CellOptions, bench_plan
from framekiln.cli.bench.files import measuring
from framekiln.cli.bench.options import SavOptions
from framekiln.contract.errors import MediaError, check_known
from framekiln.contract.placement import WEIGHT_TYPES, Placement
from framekiln.lab.models.registry import RANDOM, find_model
from framekiln.lab.sav.layout import AnnotatedVideo, annotated_videos, write_made_video
from framekiln.lab.sav.measure import SavBench, SavSettings, VideoModel, VideoRow
from framekiln.lab.sav.trackers import check_model, load_tracker
from framekiln.planning.manifest import read_pipeline
from framekiln.reporting.bench.page import PictureRow, picture_rows
from framekiln.reporting.bench.tables import videos_table
from framekiln.reporting.terminal.console import DENSE, print_line, show_table


def _make_settings(options: SavOptions, device: str, out: Path | None) -> SavSettings:
    return SavSettings(
        prompt=options.prompt,
        limit_videos=options.limit_videos,
        limit_objects=options.limit_objects,
        runs=options.runs,
        device=device,
        overlays=out / "overlays" if options.overlays and out else None,
    )


def bench_videos(
    console: Console, names_: Sequence[str], cells: CellOptions, videos: SavOptions, files: BenchFiles
) -> None:
    """Measure all models on the objects of videos, and write and compare the figures.

    Raises:
        ConfigError: a model or a precision is unknown or cannot be used, or nothing was measured.
        InputError: the folder has another layout.
        OutputError: a file cannot be written.
        Exit: a condition is met, or a target is not.
    """
    plan = bench_plan(cells)
    settings = _make_settings(videos, plan.measure.device, files.out)
    models = _list_models(names_, plan.axes.precisions, settings.device, plan.weights_dir)
    rows: list[VideoRow] = []

    def figures() -> dict[str, Any]:
        return {"video": tuple(asdict(row) for row in rows)}

    def pictures() -> Sequence[PictureRow]:
        return picture_rows(rows, settings.overlays) if settings.overlays else ()

    with measuring(console, settings.device, files, rows, figures, pictures) as folder:
        root = videos.sav or write_made_video(folder)
        _measure(console, models, annotated_videos(root), settings, rows)
        show_table(console, videos_table(rows), title=False, whole=("model",), padding=DENSE)


def _list_models(
    names_: Sequence[str], precisions: Sequence[str], device: str, weights_dir: Path | None
) -> list[VideoModel]:

    for name in names_:
        check_model(name)
    for precision in precisions:
        problem = f"--precisions: videos are not measured in {precision!r}."
        check_known(precision, WEIGHT_TYPES, problem, code="FK-SAV-PRECISION")
    sources = [find_model(name, read_pipeline(None), weights_dir) for name in names_]
    return [
        VideoModel(
            name=source.name if len(precisions) == 1 else f"{source.name} {precision}",
            weights=f"dummy: {RANDOM}" if source.factory.weights is None else source.weights,
            build=partial(
                load_tracker,
                source.name,
                source.factory.weights,
                Placement(device=device, precision=precision),  # type: ignore[arg-type]
            ),
        )
        for source in sources
        for precision in precisions
    ]


def _measure(
    console: Console,
    models: Sequence[VideoModel],
    videos: Sequence[AnnotatedVideo],
    settings: SavSettings,
    rows: list[VideoRow],
) -> None:

    with suppress(MediaError):  # a mask that cannot be read becomes a row
        taken = videos[: settings.limit_videos]
        tracked = sum(len(video.frames) * len(video.objects[: settings.limit_objects]) for video in taken)
        frames = settings.runs * tracked
        print_line(console, f"At most {frames:,} frames for each model; --runs, now {settings.runs}, multiplies them.")
    for model in models:
        print_line(console, f"\n{model.name}, weights {model.weights}")
        for row in SavBench(videos=videos, settings=settings).rows(model):
            rows.append(row)
            print_line(console, f"  {row.video} object {row.object} run {row.run}: {_describe_outcome(row)}")


def _describe_outcome(row: VideoRow) -> str:
    if row.fps is None or row.latency_ms is None:
        return f"{row.outcome}, {row.why}"
    scores = "not scored" if row.j is None or row.f is None else f"J {row.j:.3f}, F {row.f:.3f}"
    scores = "J and F dummy" if row.weights.startswith("dummy") else scores
    return f"{row.frames} frames, {row.fps:.2f} a second, {row.latency_ms.median:.1f} ms, {scores}"
