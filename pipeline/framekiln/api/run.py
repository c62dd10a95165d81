"""A run from Python."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import Unpack

from framekiln.api.options import Input, Manifest, Place, RunOptions, Settings, Steps, shows
from framekiln.api.output import Output
from framekiln.api.request import make_request
from framekiln.api.watch import WatchedRun, make_watch
from framekiln.contract.stage import Stage
from framekiln.profiling.export.live_metrics import scalars_folder


def call_text(name: str, *places: Any, **options: Any) -> str:
    """Return a call as Python, without options that are None.

    >>> call_text("framekiln.run", "photos", "out", stages=["lighting", Stage], limit=None)
    "framekiln.run('photos', 'out', stages=['lighting', Stage])"
    """
    given = [f"{key}={_write_value(value)}" for key, value in options.items() if value is not None]
    return f"{name}({', '.join([*map(_write_value, places), *given])})"


def _write_value(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Stage):
        return f"{type(value).__name__}({value.config!r})"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_write_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_write_value, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    return repr(value)


@shows(RunOptions)
def run(
    input: Input = None,
    output: Place | None = None,
    *,
    profile: Manifest = "cpu-only",
    pipeline: Manifest | None = None,
    stages: Steps = None,
    settings: Settings = None,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> Output:
    """Process a collection into tables and a report. The same call continues an interrupted run.

    Args:
        input: a folder, a glob, a file, a list of files or a URL; or several of them.
        output: folder or URL for tables and report.
        profile: where steps run, and how fast: a shipped name, a YAML file, or its content.
        pipeline: what is computed: a YAML file or its content. Default: the shipped one.
        stages: only these steps and what they read, as names, stages, or functions under `framekiln.stage`.
        settings: settings by step, as in `{"flow": {"preset": "fast"}}`.
        progress: show the progress. None: in a notebook only.
        options: options of the command by the same names, listed in `framekiln.api.options`.

    Raises:
        UserError: a name, a setting, the input or the output is wrong.
        FramekilnError: a stage broke its promise, or failed on more rows than `max_errors` allows.

    >>> import framekiln
    >>> from framekiln.media.samples import photos
    >>> output = framekiln.run(photos()["flower.jpg"], tmp_path, stages=["lighting"])
    >>> output.table("frames").to_table().num_rows
    1
    """
    chosen: dict[str, Any] = {"profile": profile, "pipeline": pipeline, "stages": stages, "settings": settings}
    request = make_request(input, output, kind=RunOptions, **chosen, **options)
    request = replace(request, call=call_text("framekiln.run", input, output, **chosen, **options))
    run = WatchedRun(request, make_watch(progress), scalars_folder(options.get("tensorboard")))
    run.result()
    return Output(run.job.store.root)
