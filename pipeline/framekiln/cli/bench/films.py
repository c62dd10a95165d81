"""`framekiln bench MODEL --clip 1080p,4k` and `--sav DIR`: from a clip's file to results, or objects of videos."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rich.console import Console

from framekiln.api.bench import BenchFiles
from framekiln.api.bench_options import CellOptions, bench_plan
from framekiln.api.options import split_names
from framekiln.cli.bench.measure import measuring
from framekiln.cli.bench.options import ClipOptions, SavOptions
from framekiln.contract.errors import MediaError, check_known
from framekiln.contract.placement import WEIGHT_TYPES, Placement
from framekiln.lab.clips.formats import FORMATS, Load, clip_of_file, made_clip
from framekiln.lab.clips.measure import ClipSettings, measure_clips
from framekiln.lab.models.factory import RANDOM
from framekiln.lab.models.registry import find_model
from framekiln.lab.output.film_rows import SCENARIOS, ClipRow, VideoRow
from framekiln.lab.output.results import OtherFigures
from framekiln.lab.samples import calls_needed
from framekiln.lab.sav.layout import annotated_videos, write_made_video
from framekiln.lab.sav.masks import check_model, load_tracker
from framekiln.lab.sav.measure import SavSettings, VideoModel, measure_videos
from framekiln.planning.limits import Limit
from framekiln.planning.manifest import read_pipeline
from framekiln.reporting.bench.tables import clips_table, videos_table
from framekiln.reporting.terminal.console import DENSE, print_line, show_table


def clip_settings(options: ClipOptions, cells: CellOptions, limits: Sequence[Limit] = ()) -> ClipSettings:
    """Return the settings of the clips. Raises ConfigError if a scenario or a target is unknown."""
    asked, plan = split_names(options.scenario), bench_plan(cells)
    for name in asked:
        check_known(name, SCENARIOS, f"--scenario: there is no {name!r}.", code="FK-BENCH-SCENARIO")
    needed = calls_needed(limits, options.clip_frames, "--clip-frames")
    frames = options.clip_frames or max(Load.frames, needed)
    load = Load(frames=frames, batch=options.streams, rate=options.rate, linger_s=options.linger_ms / 1000)
    return ClipSettings(
        scenarios=tuple(name for name in SCENARIOS if name in asked),
        pools={"on": (True,), "off": (False,), "both": (True, False)}[options.pools],
        load=load,
        cell=plan.first_cell,
        device=plan.measure.device,
    )


def bench_clips(
    console: Console, models: Sequence[str], cells: CellOptions, clips: ClipOptions, files: BenchFiles
) -> None:
    """Measure all models on all clips, and write and compare the figures; see `measuring`.

    Raises ConfigError: a model, a scenario or a target is unknown, or a model cannot be built. Raises InputError: a
    clip cannot be decoded.
    """
    settings = clip_settings(clips, cells, files.limits)
    found = [find_model(name, read_pipeline(None), bench_plan(cells).weights_dir) for name in models]
    rows: list[ClipRow] = []
    if clips.clip_frames is None and settings.load.frames > Load.frames:
        asked = ", ".join(one.text for one in files.limits)
        print_line(console, f"{settings.load.frames} frames of each clip, for {asked}.")

    with measuring(console, settings.device, files, lambda: {"extra": OtherFigures(clips=tuple(rows))}) as folder:
        made = [
            made_clip(FORMATS[name], folder) if name in FORMATS else clip_of_file(Path(name), 1 + clips.stereo)
            for name in split_names(clips.clip)
        ]
        for model in found:
            print_line(console, f"\n{model.name}, weights {model.weights}")
            first = len(rows)
            rows.extend(measure_clips(model, made, settings))
            show_table(console, clips_table(rows[first:]), title=False, whole=("clip", "scenario"), padding=DENSE)
            for row in rows[first:]:
                inside = [f"{name} {share:.0%}" for name, share in row.shares.items()]
                pools = "" if row.pools else ", no pools"
                said = ", ".join(inside if row.outcome == "ok" else [row.outcome, row.why])
                print_line(console, f"{row.clip}, {row.scenario}{pools}: {said}")


def bench_videos(
    console: Console, names_: Sequence[str], cells: CellOptions, videos: SavOptions, files: BenchFiles
) -> None:
    """Measure all models on the objects of videos, and write and compare the figures; see `measuring`.

    Raises ConfigError: a model or a precision is unknown or cannot be used. Raises InputError: the folder has another
    layout.
    """
    plan = bench_plan(cells)
    settings = SavSettings(
        prompt=videos.prompt,
        limit_videos=videos.limit_videos,
        limit_objects=videos.limit_objects,
        runs=videos.runs,
        device=plan.measure.device,
        overlays=files.out / "overlays" if videos.overlays and files.out else None,
    )
    models = _list_models(names_, plan.axes.precisions, settings.device, plan.weights_dir)
    rows: list[VideoRow] = []
    with measuring(console, settings.device, files, lambda: {"video": tuple(rows)}) as folder:
        listed = annotated_videos(videos.sav or write_made_video(folder))
        with suppress(MediaError):  # an unreadable mask becomes a row
            taken = listed[: videos.limit_videos]
            tracked = sum(len(video.frames) * len(video.objects[: videos.limit_objects]) for video in taken)
            most = f"At most {videos.runs * tracked:,} frames for each model"
            print_line(console, f"{most}; --runs, now {videos.runs}, multiplies them.")
        for model in models:
            print_line(console, f"\n{model.name}, weights {model.weights}")
            for row in measure_videos(model, listed, settings):
                rows.append(row)
                print_line(console, f"  {row.video} object {row.object} run {row.run}: {_describe_outcome(row)}")
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


def _describe_outcome(row: VideoRow) -> str:
    if row.fps is None or row.latency_ms is None:
        return f"{row.outcome}, {row.why}"
    scores = "not scored" if row.j is None or row.f is None else f"J {row.j:.3f}, F {row.f:.3f}"
    scores = "J and F dummy" if row.weights.startswith("dummy") else scores
    return f"{row.frames} frames, {row.fps:.2f} a second, {row.latency_ms.median:.1f} ms, {scores}"
