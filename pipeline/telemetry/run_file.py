"""`run.json`: all that is needed to run it again and to know later what machine and versions a figure came from."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from pipeline.errors import ConfigError
from pipeline.machines import gpu_names
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.order import Order
from pipeline.plan import Choices
from pipeline.step import Step
from pipeline.storage import Store
from pipeline.work import Result

NAME = "run.json"
_BY_STEP = ("steps", "figures")
_KINDS: dict[str, type] = {
    **dict.fromkeys(("arguments", "machines", "waves"), list),
    **dict.fromkeys((*_BY_STEP, "profile", "pipeline", "decode", "choices", "errors", "throughput", "skipped"), dict),
}
"""What readers go into; where one of these is something else, somebody or something has damaged the file."""

_ASKED = ("arguments", "folder", "output")
_TOLD_BY_THE_LAST = ("skipped", "fetch")
_PACKAGES = ("framemill", "ray", "pyarrow", "numpy", "torch", "opencv-contrib-python", "av", "pillow", "mediapipe")


def write_run_file(store: Store, order: Order, result: Result) -> bool:
    """Write or replace the output's run.json; false where it stays as it is.

    A run with nothing to do leaves the record of the one that did the work, but for what it left out itself. A damaged
    one is replaced: the parts say what is done, and nothing of that rests on this file.
    """
    made, before = record(order, result), _readable(store)
    if order.again is not None and before is not None:  # the command that is worth giving again is the run's
        made |= {key: before[key] for key in _ASKED if key in before}
    if before is not None and not result.work.changed:
        told = {key: made[key] for key in _TOLD_BY_THE_LAST}
        if all(before.get(key) == value for key, value in told.items()):
            return False
        made = before | told
    store.write(NAME, json.dumps(made, indent=2, default=str).encode())
    return True


def read_run_file(store: Store) -> dict[str, Any]:
    """The record of the last run that did something, whatever is under its keys.

    Raises:
        FileNotFoundError: there is none.
        ConfigError: it is damaged, or none of ours.
    """
    try:
        found: Any = json.loads(store.read(NAME))
    except ValueError as error:
        raise _damaged(store, str(error)) from error
    if not isinstance(found, dict) or not {"steps", "figures", "profile"} & found.keys():
        raise ConfigError(f"The {NAME} in {store.root!r} is none of Framemill's; give the folder that --output named.")
    return found


def read_whole(store: Store, needs: Sequence[str] = ()) -> dict[str, Any]:
    """As `read_run_file`, and what readers go into is of the kind that they take it for.

    Args:
        store: the output.
        needs: keys without which the reader can do nothing.

    Raises:
        FileNotFoundError: there is none.
        ConfigError: it is damaged, none of ours, or another version's that has no such keys.
    """
    found = read_run_file(store)
    for key, kind in _KINDS.items():
        if not isinstance(found.get(key, kind()), kind):
            raise _damaged(store, f"{key!r} is a {type(found[key]).__name__}")
    for key in _BY_STEP:
        if wrong := [name for name, said in found.get(key, {}).items() if not isinstance(said, dict)]:
            raise _damaged(store, f"{key!r} says nothing of {wrong[0]!r}")
    if lacks := [key for key in needs if key not in found]:
        raise ConfigError(
            f"The {NAME} in {store.root!r} was written by another version of Framemill and lacks {', '.join(lacks)}; "
            "run the same command again with this one first."
        )
    return found


def _readable(store: Store) -> dict[str, Any] | None:
    """The record that is there; None where there is none, or nobody can read it."""
    with suppress(FileNotFoundError, ConfigError):
        return read_whole(store)
    return None


def _damaged(store: Store, why: str) -> ConfigError:
    return ConfigError(
        f"The {NAME} in {store.root!r} is damaged ({why}); run the same command again, which writes it anew and "
        "computes nothing twice."
    )


def order_of(store: Store) -> Order:
    """The order that an output's last run was given, as far as it decides results.

    Raises:
        FileNotFoundError: no run into it came to its end.
        ConfigError: its run.json is damaged, or another version of Framemill wrote it.
    """
    found = read_whole(store)
    try:
        said = found["choices"] | {"stages": tuple(found["choices"]["stages"])}
        said["settings"] = tuple(said["settings"])
        for name in ("weights_dir", "calibration"):
            if said.get(name):
                said[name] = Path(found["folder"]) / said[name]
        source = str(found["input"])
        return Order(
            input=source if "://" in source else str(Path(found["folder"]) / Path(source).expanduser()),
            output=store.root,
            pipeline=PipelineFile.model_validate(found["pipeline"]),
            profile=ProfileFile.model_validate(found["profile"]),
            profile_name=found["profile_name"],
            choices=Choices(**said),
            limit=found["limit"],
            shard=tuple(found["shard"]) if found["shard"] else None,
            by_content=found["by_content"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The run.json in {store.root!r} was written by another version of Framemill; run the same command again "
            "with this one first."
        ) from error


def record(order: Order, result: Result) -> dict[str, Any]:
    """The contents of run.json."""
    plan = result.work.plan
    return {
        "started": datetime.fromtimestamp(result.started, UTC).isoformat(timespec="seconds"),
        "seconds": round(result.seconds, 2),
        "input": order.input,
        "output": order.output,
        "arguments": sys.argv[1:],
        "folder": str(Path.cwd()),
        "choices": asdict(order.choices),
        "limit": order.limit,
        "shard": order.shard,
        "by_content": order.by_content,
        "profile_name": order.profile_name,
        "profile": order.profile.model_dump(exclude_none=True),
        "pipeline": order.pipeline.model_dump(by_alias=True),
        "decode": vars(plan.decode.config) | {"fingerprint": plan.decode.fingerprint, "columns": plan.decode.columns},
        "loaders": {"workers": plan.decode.workers, "cpus": plan.decode.cpus},
        "steps": {step.name: _step(step) for step in plan.steps},
        "skipped": dict(plan.skipped),
        "fetch": plan.fetch,
        "dummies": list(plan.dummies),
        "waves": [[step.name for step in wave.own] for wave in plan.waves],
        "reasons": list(plan.reasons),
        "files": len(result.work.media),
        "frames": result.frames,
        "errors": dict(result.errors),
        "figures": result.figures.to_dict(),
        "throughput": result.profile.to_dict() if result.profile else {},
        "machines": [vars(node) for node in result.work.nodes],
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "gpu_names": gpu_names(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "use": step.use,
        "version": step.stage.version,
        "settings": vars(step.stage.config),
        "placement": vars(step.placement),
        "fingerprint": step.fingerprint,
        "weights": list(step.stage.weights),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's name where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123
            return next(
                (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
            )
    except OSError:
        return platform.processor()
