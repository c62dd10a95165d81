"""Options of `framekiln bench` that do not go together: none is left out in silence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from framekiln.cli.bench.clips import ClipOptions
from framekiln.cli.bench.files import FileArguments
from framekiln.cli.bench.nsight import NsightOptions
from framekiln.cli.bench.options import CellArguments
from framekiln.cli.bench.videos import SavOptions
from framekiln.contract.errors import ConfigError

_MACHINE = ("device", "weights_dir")
_CELL = ("size", "frames", "precisions", "compile_", "backends", "channels_last", *_MACHINE)
_READ = {"--sav": ("precisions", *_MACHINE), "--clip": _CELL, "--nsys": ("batch", "pipeline", "input_", *_CELL)}
"""Fields of `CellArguments` that a measurement other than that of cells reads."""

UNMEASURED = ("out", "save", "against", "fail_if", "target")
"""Fields of `FileArguments` that figures measured before need."""


def check_options(
    cells: CellArguments, videos: SavOptions, clips: ClipOptions, nsight: NsightOptions, files: FileArguments
) -> None:
    """Check that everything that was asked for is measured, and that the files of it can be written.

    Raises:
        ConfigError: something would be left out, a file cannot be written, or there is no GPU.
    """
    from framekiln.lab.measure.timed import check_device

    if videos.sav is not None and videos.test:
        raise ConfigError("--sav and --test are measured one at a time.", code="FK-BENCH-OPTION")
    asked = {"--sav": videos.is_asked, "--clip": bool(clips.clip), "--nsys": nsight.is_asked}
    others = [name for name, is_asked in asked.items() if is_asked]
    if len(others) > 1:
        raise ConfigError(f"{others[0]} and {others[1]} are measured one at a time.", code="FK-BENCH-OPTION")
    for name, group in (("--sav", videos), ("--clip", clips)):
        if not asked[name]:
            check_unread(given(group), f"without {name}")
    for name in others:
        unread = given(files, ("out",)) if name == "--nsys" else []  # recordings are compared with nothing
        check_unread([*given(cells, _READ[name]), *unread], f"with {name}")
    if files.note and not files.history:
        check_unread(["--note"], "without --history")
    if cells.iterations is not None and cells.duration is not None:
        check_unread(["--duration"], "with --iterations")
    if cells.find_batch and cells.batch != CellArguments.batch:
        check_unread(["--batch"], "with --find-batch")
    files.files().check()
    if not nsight.dry_run:
        check_device(cells.device)


def given(options: Any, known: Collection[str] = ()) -> list[str]:
    """Return the options with another value than their default, but for some fields, as on the command line."""
    return [
        f"--{field.name.rstrip('_').replace('_', '-')}"
        for field in fields(options)
        if field.name not in known and getattr(options, field.name) != field.default
    ]


def check_unread(options: Sequence[str], where: str) -> None:
    """Check that there is no option that nothing reads.

    Raises:
        ConfigError: there is one.
    """
    if options:
        raise ConfigError(f"{options[0]} changes nothing {where}; leave it out.", code="FK-BENCH-OPTION")
