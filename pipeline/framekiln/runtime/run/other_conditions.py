"""Values that runs with other conditions left, so that a wider condition computes the new rows alone."""

from collections.abc import Sequence
from dataclasses import replace

from framekiln.contract.output_names import COLUMNS, FACTS
from framekiln.contract.stage import Scope
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.planning.step import Step, is_file_column
from framekiln.runtime.run.change_report import stored_facts


def with_others(plan: Plan, store: Store) -> Plan:
    """Return a plan whose steps know the folders with the same values of other rows."""
    there = set(store.folders(COLUMNS))
    known = [name for path in store.names(FACTS) if (name := path.removesuffix(".json")) in there]
    others = {step.name: _find(step, known, store) for step in plan.first if _may_reuse(step)}

    def extend(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(replace(step, others=others.get(step.name, ())) for step in steps)

    waves = tuple(replace(wave, steps=extend(wave.steps)) for wave in plan.waves)
    return replace(plan, first=extend(plan.first), waves=waves) if any(others.values()) else plan


def _find(step: Step, known: Sequence[str], store: Store) -> tuple[str, ...]:
    """Return folders of parts with the same values, of the same rows or clips, that of all rows first."""
    names = [name for name in known if name.rpartition("-")[0] == step.name and name != step.folder]
    alike = {name: (stored_facts(store, name) or {}).get("alike", name.rpartition("-")[2]) for name in names}
    same = [name for name in names if alike[name] == step.alike]
    return tuple(sorted(same, key=lambda name: name != f"{step.name}-{step.alike}"))


def _may_reuse(step: Step) -> bool:
    """Return whether values by another condition serve: files of clips lie in folders of their condition."""
    return step.stage.scope is Scope.ROW or not any(map(is_file_column, step.stage.outputs))
