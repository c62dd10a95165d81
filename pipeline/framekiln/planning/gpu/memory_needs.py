"""The memory of a GPU that the models of a wave need by arithmetic: what `plan` sets beside a profile's limits.

Each stage counts its model's weights and its largest call (`Stage.gpu_memory`), checked against torch's own counts.
Packets in work and contexts are the same for all models. Memory that torch holds between calls is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from framekiln.contract.placement import GpuMemory
from framekiln.planning.gpu.co_location import IN_FLIGHT_GB, GpuCapacity, Requirement, WaveLayout


@dataclass(frozen=True, kw_only=True)
class MemoryNeeds:
    """GB by cause."""

    weights_gb: float
    call_gb: float  # the largest call of each process
    largest: str  # the step that makes the largest of these
    packets_gb: float
    contexts_gb: float

    @property
    def gb(self) -> float:
        """All together."""
        return self.weights_gb + self.call_gb + self.packets_gb + self.contexts_gb

    @classmethod
    def of(cls, wave: WaveLayout, capacity: GpuCapacity) -> MemoryNeeds | None:
        """Return what a wave needs; None where nobody counted one of its models in its precision."""
        counted = {each.name: each.step.stage.gpu_memory(each.step.placement) for each in wave.members}
        known = {name: memory for name, memory in counted.items() if memory is not None}
        if len(known) < len(counted) or any(each.step.placement.precision == "fp32" for each in wave.members):
            return None
        weights = calls = packets = contexts = 0.0
        for names in wave.processes:
            sharing = [each for each in wave.members if each.name in names]
            workers = max(each.workers for each in sharing)
            weights += workers * _sum_weights(sharing, known)
            calls += workers * max(known[name].call_gb for name in names)
            packets += workers * IN_FLIGHT_GB * max(each.step.placement.in_flight for each in sharing)
            contexts += workers * capacity.context_gb
        largest = max(known, key=lambda name: known[name].call_gb)
        return cls(weights_gb=weights, call_gb=calls, largest=largest, packets_gb=packets, contexts_gb=contexts)


def _sum_weights(sharing: list[Requirement], known: dict[str, GpuMemory]) -> float:
    """Return the GB of weights in a process: steps with the same weights and precision share one copy."""
    copies = {
        (each.step.stage.weights, each.step.placement.precision, each.step.placement.compile): known[each.name]
        for each in sharing
    }
    return sum(memory.weights_gb for memory in copies.values())
