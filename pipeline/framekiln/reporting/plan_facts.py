"""A plan as plain values, as `plan --json` prints them (docs/hardware/planning.md), and a plan's facts in run.json."""

import importlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from framekiln.contract.code_version import version_of
from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import UserError
from framekiln.contract.row_errors import DECODE
from framekiln.contract.stage import Scope, Stage
from framekiln.contract.words import counted
from framekiln.planning.plan import Plan
from framekiln.planning.processes.waves import Wave
from framekiln.planning.settings import adapter_of
from framekiln.planning.step import DecodeStep, Step
from framekiln.runtime.run.change_report import Changes, Outlook

_LEFT = ("done", "todo", "rows", "why")  # of a step's remaining work
_PLACED = ("device", "cpus", "gpus", "workers", "vram_gb", "precision", "compile", "group")


def plan_facts(
    plan: Plan,
    *,
    notes: Sequence[str] = (),
    work: tuple[Changes, Sequence[Outlook]] | None = None,
    refusal: UserError | None = None,
) -> dict[str, Any]:
    """Return a plan as JSON values, with sentences, the remaining work, and why a run is refused."""
    left: dict[str, Any] | None = None
    if work:
        changes, outlook = work
        files = {"new": changes.new, "changed": changes.changed, "removed": list(changes.removed)}
        steps = [{"name": one.step, **{key: getattr(one, key) for key in _LEFT}} for one in outlook]
        left = {"steps": steps, "files": files}
    return {
        "steps": [decode_facts(plan.decode), *map(step_facts, plan.steps)],
        "waves": [wave_processes(wave) for wave in plan.waves],
        "reasons": list(plan.reasons),
        "changes": plan_changes(plan),
        "absent": dict(plan.absent),
        "skipped": sorted(plan.skipped),
        "random": list(plan.dummies),
        "fetch": plan.fetch or None,
        "fetch_mb": round(plan.fetch_mb, 1),
        "notes": list(notes),
        "work": left,
        "fits": refusal is None,
        "refusal": refusal and {"code": refusal.code, "message": str(refusal)},
    }


def decode_facts(decode: DecodeStep) -> dict[str, Any]:
    """Return decoding as one of the steps."""
    placed = {"device": "cpu", "cpus": decode.cpus, "gpus": 0.0, "workers": decode.workers}
    added = [*SOURCE.names, *decode.columns]
    return {"name": DECODE, "scope": "", "fingerprint": decode.fingerprint, **placed, "reads": ["files"], "adds": added}


def step_facts(step: Step) -> dict[str, Any]:
    """Return a step's placement, weights and columns."""
    stage = step.stage
    other = "random" if step.name in step.dummies else "missing"
    return {
        "name": step.name,
        "use": step.use,
        "scope": stage.scope.value,
        "fingerprint": step.fingerprint,
        **{key: getattr(step.placement, key) for key in _PLACED},
        "batch": step.placement.batch if stage.scope is Scope.ROW else None,
        "chunks": dict(step.placement.chunks),
        "weights": {name: "present" if name in step.weights else other for name in stage.weights},
        "reads": [*stage.received, *(f"{name}/" for name in stage.input_tables)],
        "adds": stage.outputs.names if step.first_pass else [f"{name}/" for name in stage.tables],
        "condition": step.condition.words,
        "drops": [name for name in step.drops if name not in stage.outputs.names],  # its own never enter a packet
    }


def wave_processes(wave: Wave) -> list[list[str]]:
    """Return the steps that share each process of a wave, the decoding process first."""
    own = [[step.name for step in group if not step.recalled] for group in wave.groups()]
    return [([DECODE] if i == 0 else []) + names for i, names in enumerate(own)]


def plan_changes(plan: Plan) -> list[str]:
    """Return the differences from the profile and the pipeline: numbers lowered for few cores, and weights."""
    return [change for change in (plan.limits, *plan.stand_ins) if change]


def recorded_changes(record: Mapping[str, Any]) -> list[str]:
    """Return such differences from a run.json, including models that ran uncompiled, a sentence each."""
    sentences = [record.get("limits"), *(record.get("stand_ins") or ()), *(record.get("notes") or {}).values()]
    return [str(sentence) for sentence in sentences if sentence]


def left_out(skipped: Collection[str], computed: int, *, tense: str = "were") -> str:
    """Return a sentence on the left-out steps, with the number of computed ones; empty if none was.

    >>> left_out(["faces", "identities"], 14)
    '2 of 16 steps were left out for lack of weights: faces, identities.'
    """
    if not skipped:
        return ""
    if len(skipped) == 1:
        tense = {"were": "was", "are": "is"}[tense]
    total = computed + len(skipped)
    return f"{len(skipped)} of {total} steps {tense} left out for lack of weights: {', '.join(skipped)}."


def chosen_rows(chosen: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the number of rows computed by conditional steps, in words; equal numbers share a sentence.

    >>> chosen_rows({"segment": (1200, 30000), "instances": (1200, 30000), "pose": (1, 2)})
    ['segment, instances: chosen 1,200 of 30,000 rows', 'pose: chosen 1 of 2 rows']
    """
    steps: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in chosen.items():
        steps.setdefault(tuple(numbers), []).append(name)
    return [f"{', '.join(names)}: chosen {part:,} of {counted(rows, 'row')}" for (part, rows), names in steps.items()]


def fetching(megabytes: float) -> str:
    """Return what the following command does."""
    size = f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.3g} MB"
    return f"This fetches {size}; the same run then adds them and computes nothing twice"


def rebuild(steps: Mapping[str, Any]) -> dict[str, Stage]:
    """Return the stages of a run.json by step; steps with missing code, or another version's, are left out."""
    stages = {}
    for name, step in steps.items():
        module, _, attribute = str(step.get("use", "")).partition(":")
        with suppress(Exception):  # another version's code may raise anything; readers continue without the stage
            kind = getattr(importlib.import_module(module), attribute)
            if isinstance(kind, type) and issubclass(kind, Stage):
                stage = kind(adapter_of(kind.Config).validate_python(dict(step.get("settings", {}))))
                if (version := version_of(stage)) == step.get("version", version):
                    stages[name] = stage
    return stages
