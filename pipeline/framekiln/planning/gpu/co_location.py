"""Steps on a GPU at the same time: their processes, their batches, and the resulting memory and speed.

The GPU serves one process after the other, so GPU seconds add up. Work of a process on its own cores overlaps with
that. A wave is as slow as the slowest of three: the GPU, one process, decoding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framekiln.planning.gpu.requirements import BatchOption, Requirement

Processes = tuple[tuple[str, ...], ...]
"""Names of steps by process."""


@dataclass(frozen=True, kw_only=True)
class GpuCapacity:
    """The resources for one wave."""

    limit_gb: float  # of one GPU, for all workers together
    context_gb: float  # taken by each process before it allocates anything
    decode_s: float | None = None  # seconds a row by all decode workers together; None: not measured
    rows: int = 10_000  # over which set-up times are spread
    cpus: float = 0.0  # free cores for further workers


@dataclass(frozen=True, kw_only=True)
class WaveLayout:
    """One wave."""

    members: tuple[Requirement, ...]
    processes: Processes
    gb: float  # contexts included

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its steps."""
        return tuple(member.name for member in self.members)

    @property
    def gpu_s(self) -> float | None:
        """GPU seconds a row; None if a step was not measured."""
        return total([member.option.gpu_s for member in self.members])

    def budgets(self) -> dict[str, float]:
        """Return the memory limit of each step in GB; the sum over a process is its limit without the context."""
        limits = {}
        for names in self.processes:
            sharing = [member for member in self.members if member.name in names]
            for member in sharing:
                limits[member.name] = member.kept_gb + max(other.call_gb for other in sharing) / len(sharing)
        return limits

    def limits(self, capacity: GpuCapacity) -> dict[str, float] | None:
        """Return seconds a row of each possible bottleneck; None if a step was not measured."""
        members, gpu_s = {member.name: member for member in self.members}, self.gpu_s
        if gpu_s is None:
            return None
        limits = {"the GPU": gpu_s}
        for names in self.processes:
            limits["+".join(names)] = sum(members[name].process_s / members[name].workers for name in names)
        return limits | ({"decoding": capacity.decode_s} if capacity.decode_s is not None else {})

    def seconds(self, capacity: GpuCapacity) -> float | None:
        """Return the seconds of the whole wave; None if a step was not measured."""
        limits = self.limits(capacity)
        if limits is None:
            return None
        return capacity.rows * max(limits.values()) + max(member.set_up_s for member in self.members)


def lay_out(requirements: Sequence[Requirement], processes: Processes, capacity: GpuCapacity) -> WaveLayout | None:
    """Lay steps out in one wave, as fast as the GPU's memory allows; None if they do not fit.

    It starts from the fastest batches. The batch that frees most memory for the least time is made smaller until all
    fit.
    """
    members = {each.name: each for each in requirements}
    while _sum_gb(members, processes, capacity) > capacity.limit_gb + 1e-9:
        smaller = [replace(each, used=each.used + 1) for each in members.values() if each.used + 1 < len(each.options)]
        if not smaller:
            return None
        best = min(smaller, key=lambda each: _price(members[each.name].option, each.option))
        members[best.name] = best
    return _add_workers(_make_layout(members, processes, capacity), capacity)


def _make_layout(members: Mapping[str, Requirement], processes: Processes, capacity: GpuCapacity) -> WaveLayout:
    return WaveLayout(members=tuple(members.values()), processes=processes, gb=_sum_gb(members, processes, capacity))


def _sum_gb(members: Mapping[str, Requirement], processes: Processes, capacity: GpuCapacity) -> float:
    """Return the memory of all processes: steps of one process hold all weights and take turns with the rest."""
    gb = 0.0
    for names in processes:
        sharing = [members[name] for name in names]
        held, call = sum(member.kept_gb for member in sharing), max(member.call_gb for member in sharing)
        gb += max(member.workers for member in sharing) * (held + call + capacity.context_gb)
    return gb


def _price(before: BatchOption, after: BatchOption) -> float:
    return ((after.own_s or 0.0) - (before.own_s or 0.0)) / max(1e-9, before.gb - after.gb)


def _add_workers(layout: WaveLayout, capacity: GpuCapacity) -> WaveLayout:
    """Add workers to the slowest process as long as it is the bottleneck and cores and memory allow."""
    cpus = capacity.cpus
    while (limits := layout.limits(capacity)) is not None:
        slowest = max(limits, key=lambda name: limits[name])
        member = next((member for member in layout.members if member.name == slowest), None)
        if member is None or member.fixed_workers or member.step.placement.cpus > cpus:
            return layout
        more = replace(member, workers=member.workers + 1)
        members = {each.name: more if each is member else each for each in layout.members}
        if _sum_gb(members, layout.processes, capacity) > capacity.limit_gb + 1e-9:
            return layout
        layout = _make_layout(members, layout.processes, capacity)
        cpus -= member.step.placement.cpus
    return layout


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of values; None if one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
