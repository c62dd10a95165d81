"""`run.json`: everything needed to repeat the run, its progress, and the machine and versions behind its figures."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from framekiln.contract.errors import ConfigError, DamagedError
from framekiln.contract.output_names import RUN_RECORD
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.planning.step import Step
from framekiln.runtime.run.environment import environment
from framekiln.runtime.run.progress import FINISHED, LATER, RunProgress
from framekiln.runtime.run.request import RunRequest
from framekiln.runtime.run.result import RunResult

_COMMAND = ("arguments", "call", "folder", "output")
_LEFT_OUT = ("skipped", "fetch", "fetch_mb")
_ENDED = ("state", "reason", "files_done", "written", "files", "frames", "errors", "passed_over")
_DIGEST = "sha256"


def write_run_record(store: Store, request: RunRequest, result: RunResult) -> bool:
    """Write the run.json of a finished run; return whether it changed.

    A run with nothing to do keeps the record of the run that did the work. It only updates the skipped steps, and that
    it is finished. A damaged record is replaced, and that of a shard by that of the whole. No finished work depends on
    this file, since the parts show it.
    """
    before = read_earlier(store)
    state = RunProgress(state="finished", run=store.run, files_done=len(result.work.media))
    record = _make_record(request, result, state, before)
    is_whole = before is not None and before.get("shard") and request.shard is None
    if before is not None and not result.work.changed and not is_whole:
        latest = before.get(LATER, before)  # perhaps interrupted, and now known to be finished
        is_same = all(latest.get(key) == record[key] for key in ("input", "limit", "preview", "shard"))
        ends = is_same and latest["state"] != FINISHED
        kept = (*_LEFT_OUT, *(_ENDED if ends else ()))
        record = {key: value for key, value in before.items() if key != LATER} | {key: record[key] for key in kept}
        if record == before:
            return False
    _write(store, record)
    return True


def write_progress(store: Store, request: RunRequest, result: RunResult, state: RunProgress, *, later: bool) -> None:
    """Write the run.json of an unfinished run.

    If an earlier run wrote the tables (`later`), its record stays and holds this one.
    """
    before = read_earlier(store)
    record = _make_record(request, result, state, before)
    _write(store, {**before, LATER: record} if later and before is not None else record)


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in JSON's form with a digest of its keys, so that readers need not check each value."""
    values: dict[str, Any] = json.loads(json.dumps(record, default=str))
    values.pop(_DIGEST, None)
    return values | {_DIGEST: hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()}


def _write(store: Store, record: Mapping[str, Any]) -> None:
    store.write(RUN_RECORD, json.dumps(sealed(record), indent=2).encode())


def read_run_record(store: Store, needs: Sequence[str] = ()) -> dict[str, Any]:
    """Return the unchanged record of the run that wrote the tables; it has all of `needs`.

    The run may be unfinished: see `framekiln.runtime.run.progress`.

    Raises ConfigError: there is none, it is damaged or another program's, or another version's and lacks such keys.
    """
    try:
        record: Any = store.read_json(RUN_RECORD)
    except FileNotFoundError as error:
        raise ConfigError(
            f"There is no {RUN_RECORD} in {store.root!r}, so no run has computed anything there: check the path, or "
            "run something into it first.",
            code="FK-NO-RUN-JSON",
        ) from error
    except DamagedError as error:
        raise _explain_damage(store, str(error.__cause__ or error)) from error
    if not isinstance(record, dict) or not {"steps", "figures", "profile"} & record.keys():
        raise ConfigError(
            f"The {RUN_RECORD} in {store.root!r} was not written by Framekiln; give the folder that --output named.",
            code="FK-NOT-OURS",
        )
    if record.get(_DIGEST) != sealed(record)[_DIGEST]:
        raise _explain_damage(store, "its values are not those that were written")
    if missing := [key for key in needs if key not in record]:
        raise _explain_version(store, f" and lacks {', '.join(missing)}")
    return record


def stored_request(store: Store) -> RunRequest:
    """Return the request of an output's last run, finished or not, without options that change no results.

    Raises ConfigError: there is no run.json, it is damaged, or another version of Framekiln wrote it.
    """
    record = read_run_record(store)
    try:
        return RunRequest.from_record(record.get(LATER, record), store.root)
    except (KeyError, TypeError, ValueError) as error:
        raise _explain_version(store) from error


def read_earlier(store: Store) -> dict[str, Any] | None:
    """Return the record in the output; None if it is missing or unreadable."""
    with suppress(ConfigError):
        return read_run_record(store)
    return None


def _explain_damage(store: Store, why: str) -> ConfigError:
    return ConfigError(
        f"The {RUN_RECORD} in {store.root!r} is damaged ({why}); run the same command again, which writes it anew and "
        "computes nothing twice.",
        code="FK-RUN-RECORD-DAMAGED",
    )


def _explain_version(store: Store, details: str = "") -> ConfigError:
    return ConfigError(
        f"The {RUN_RECORD} in {store.root!r} was written by another version of Framekiln{details}; run the same "
        "command again with this version first.",
        code="FK-OTHER-VERSION",
    )


def _make_record(
    request: RunRequest, result: RunResult, state: RunProgress, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the record of a run; a retry keeps the command of the run before, which is to be repeated."""
    latest = (before or {}).get(LATER, before or {})
    rooms = {step: vars(room) for step, room in result.work.rooms.items()}
    unmeasured = {} if state.state == FINISHED else {"run": state.run, "rooms": rooms}
    command = {} if request.retry is None else {key: latest[key] for key in _COMMAND if key in latest}
    return {
        **request.to_record(),
        **state.to_record(),
        "started": datetime.fromtimestamp(result.started, UTC).isoformat(timespec="seconds"),
        "seconds": round(result.seconds, 2),
        "folder": str(Path.cwd()),
        **command,
        **_describe_plan(result.work.plan),
        "files": len(result.work.media),
        "frames": result.frames,
        "errors": dict(result.errors),
        "passed_over": result.passed_over,
        "chosen": result.chosen,
        "absent_rows": result.absent_rows,
        "figures": result.figures.to_dict(),
        "notes": result.figures.notes,
        "engine": result.figures.engine,
        "throughput": result.profile.to_dict() if result.profile else unmeasured,
        "machines": [vars(node) for node in result.work.nodes],
        **environment(),
    }


def _describe_plan(plan: Plan) -> dict[str, Any]:
    return {
        "decode": vars(plan.decode.config) | {"fingerprint": plan.decode.fingerprint, "columns": plan.decode.columns},
        "decode_workers": {"workers": plan.decode.workers, "cpus": plan.decode.cpus},
        "steps": {step.name: _describe_step(step) for step in plan.steps},
        "skipped": dict(plan.skipped),
        "fetch": plan.fetch,
        "fetch_mb": round(plan.fetch_mb, 1),
        "dummies": list(plan.dummies),
        "void": list(plan.void),
        "waves": [[step.name for step in wave.own] for wave in plan.waves],
        "reasons": list(plan.reasons),
        "limits": plan.limits,
        "stand_ins": list(plan.stand_ins),
    }


def _describe_step(step: Step) -> dict[str, Any]:
    placement = vars(step.placement)
    return {
        "use": step.use,
        "version": step.facts["version"],
        "settings": vars(step.stage.config),
        "placement": {key: value for key, value in placement.items() if key != "chunks"},
        "fingerprint": step.fingerprint,
        "weights": list(step.stage.weights),
    }
