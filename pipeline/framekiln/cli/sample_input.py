"""The sample collection as the input of a run that names none: the first run of a new install, or of a new cluster."""

import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from framekiln.output.object_store import Store
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.run.request import RunRequest

OUTPUT = "framekiln-out"  # where no output is named either
_LAST = "clips/lights-out.mp4"  # of the files that are made


def with_samples(request: RunRequest, console: Console) -> RunRequest:
    """Return the request, with the sample collection if it has no input.

    The collection is written beside the output, which all machines of a cluster reach. Steps without their weights are
    left out, as the first run should show what is there.

    Raises:
        OutputError: the folder beside the output cannot be written.
    """
    if request.inputs:
        return request
    output = request.output or OUTPUT
    folder = f"{output.rstrip('/')}-samples"
    store = Store(folder)
    if not store.exists(_LAST):
        _write(store)
    print_line(console, f"No input was named, so the sample collection in {folder} is used. Yours: --input PATH.")
    policy = "skip" if request.options.missing_weights == "fail" else request.options.missing_weights
    return replace(request, input=folder, output=output, options=replace(request.options, missing_weights=policy))


def _write(store: Store) -> None:
    from framekiln.media.samples import make

    store.prepare()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix() == _LAST):
            store.write(path.relative_to(folder).as_posix(), path.read_bytes())
