"""The work of two runs: equal or not, the differences around it, and each one's figures by name.

Figures of another model say nothing about speed. They come from run.json if possible, so that runs with and without
records are compared by one definition. Percentiles come only from records. An unmeasured figure has no entry.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framekiln.contract.row_errors import DECODE
from framekiln.profiling.targets import figures_of, recorded_figures
from framekiln.reporting.compare.runs import Run
from framekiln.reporting.kit.texts import MISSING, count
from framekiln.runtime.run.change_report import differences

SAME, DIFFERENT = "same", "different"
_MOST_NAMED = 200  # files of each kind that are listed; their number is always given


@dataclass(frozen=True, kw_only=True)
class ComparedStep:
    """One step in two runs."""

    step: str
    verdict: str  # same, different, only in A, ...
    why: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileComparison:
    """The input files of two runs."""

    same: int  # files in both, of equal size, and of equal content if both digests are known
    other: Mapping[str, Sequence[str]]  # media_ids that changed, or are in only one run, by kind in words

    @property
    def differ(self) -> bool:
        return any(self.other.values())

    @property
    def sentence(self) -> str:
        if not self.differ:
            return f"The same {count(self.same, 'file')}." if self.same else "The files of both runs are not known."
        parts = [f"{self.same:,} {'file is' if self.same == 1 else 'files are'} the same in both"]
        for kind, files in self.other.items():
            one, several = ("has", "have") if kind == "changed" else ("is", "are")
            parts += [f"{len(files):,} {one if len(files) == 1 else several} {kind}"] if files else []
        return f"{', '.join(parts)}."

    @property
    def examples(self) -> list[tuple[str, str]]:
        """The first differing files of each kind: the kind and the media_id."""
        return [(kind, name) for kind, files in self.other.items() for name in files[:_MOST_NAMED]]


def compare_step(step: str, first: Run, second: Run, names: tuple[str, str]) -> ComparedStep:
    """Compare the work of a step that at least one of two runs has."""
    present = [step in run.fingerprints for run in (first, second)]
    if not all(present):
        return ComparedStep(step=step, verdict=f"only in {names[present.index(True)]}")
    if first.fingerprints[step] == second.fingerprints[step]:
        return ComparedStep(step=step, verdict=SAME)
    before, now = first.facts(step), second.facts(step)
    why = differences(before, now, "decode rule" if step == DECODE else "setting") if before and now else ()
    return ComparedStep(step=step, verdict=DIFFERENT, why=tuple(why) or ("the difference was not recorded",))


def compare_files(first: Run, second: Run, names: tuple[str, str]) -> FileComparison:
    """Compare input files by media_id and size, and by digest if both are known."""
    a, b = first.media, second.media
    common = [name for name in a if name in b]
    pairs = {name: tuple(zip(a[name], b[name], strict=True)) for name in common}  # pairs of sizes and digests
    changed = sorted(n for n, (sizes, digests) in pairs.items() if sizes[0] != sizes[1] or len({*digests} - {""}) > 1)
    only = {f"only in {names[0]}": sorted(a.keys() - b.keys()), f"only in {names[1]}": sorted(b.keys() - a.keys())}
    return FileComparison(same=len(common) - len(changed), other={"changed": changed, **only})


_PLANNED = {"workers": "workers, as planned"}  # the figure `workers` counts the processes that took part
_PROFILE = {"profile_name": "name", "waves": "waves"}
_MACHINE = {
    "processor": "processor",
    "memory_gb": "memory, GB",
    "gpu_names": "GPUs of the driver's machine",
    "python": "Python",
    "system": "system",
    "engine": "engine",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between two runs."""

    where: str  # a step, "profile", "machine" or "version"
    what: str
    first: str
    second: str


def changes(first: Run, second: Run) -> list[Change]:
    """Return the differences of what both run.json hold."""
    return [
        *_find_differing("profile", first.record, second.record, _PROFILE),
        *_find_differing("profile", first.part("choices"), second.part("choices"), {"vram_cap": "VRAM cap, GB"}),
        *_find_differing(DECODE, first.part("decode_workers"), second.part("decode_workers")),
        *(
            change
            for step in first.part("steps")
            for change in _find_differing(step, *(run.part("steps", step, "placement") for run in (first, second)))
        ),
        *_find_differing("machine", first.record, second.record, _MACHINE),
        *_find_differing("machine", *({"nodes": _count_nodes(run.record.get("machines"))} for run in (first, second))),
        *_find_differing("version", first.part("versions"), second.part("versions")),
    ]


def _count_nodes(machines: Any) -> str:
    """Return the number of nodes of each kind: `2 × 16 CPUs, 1 GPUs`."""
    kinds = Counter(f"{node.get('cpus', 0):g} CPUs, {node.get('gpus', 0):g} GPUs" for node in machines or ())
    return "; ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items())) or MISSING


def _find_differing(
    where: str, first: Mapping[str, Any], second: Mapping[str, Any], titles: Mapping[str, str] | None = None
) -> Iterator[Change]:
    """Yield each key with different values on the two sides: the titled keys, or without titles all of them."""
    for key, title in (titles or {key: _PLANNED.get(key, key) for key in first}).items():
        if key in first and key in second and first[key] != second[key]:
            yield Change(where=where, what=title, first=_write(first[key]), second=_write(second[key]))


def _write(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return " | ".join(map(_write, value))
    if isinstance(value, list):
        return ", ".join(map(str, value)) or MISSING
    return MISSING if value is None or value == "" else str(value)


def measure(run: Run, step: str) -> dict[str, float]:
    """Return a step's figures, including each phase in ms a row as `phase NAME`."""
    figures = recorded_figures(run.statistics[step]) if step in run.statistics else {}
    totals = figures_of(run.part("figures", step))
    figures = totals | figures if run.cut else figures | totals  # a killed run wrote the latter before its end
    if run.cut or step in run.partial_steps:  # each run counts its own errors only
        figures.pop("errors", None)
    return {name: float(value) for name, value in figures.items()}


def measure_run(run: Run, price: float | None, energy_wh: float | None) -> dict[str, float]:
    """Return the figures of the whole run; `price` is that of an hour of its machines, in any currency."""
    figures = {name: float(run.record[name]) for name in ("seconds", "frames")}
    if run.cut or run.partial_steps:  # the tables are complete, but the time covers only a part
        return {name: value for name, value in figures.items() if name == "frames"}
    if images := run.part("figures", DECODE).get("rows"):
        if price is not None:
            figures["cost"] = 1000 * price * figures["seconds"] / 3600 / images
        if energy_wh is not None:
            figures["energy"] = 1000 * energy_wh / images
    return figures
