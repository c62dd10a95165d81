"""Calls that wait for a device, and the batches of their rows that the owner thread computes (`call_scheduler`).

Tensors of a call are n ...; the rows of a batch are consecutive rows of several calls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from framekiln.device.lazy import torch
from framekiln.device.streams import Mark

_PASSED = 8  # batches of other calls that may go first; from 4 to 32, a simulated GPU's share stayed within 0.01


class Model(Protocol):
    """A model that calls wait for: `framekiln.device.model.Batches`."""

    def direct(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Compute all rows now, in this thread."""

    def most(self, tensors: Sequence[torch.Tensor]) -> int:
        """Return the most rows of a call with rows of this size."""

    def halve(self, tensors: Sequence[torch.Tensor]) -> None:
        """Halve the rows of a call, after one did not fit into the memory."""


@dataclass(eq=False)
class Call:
    """One thread's call of a model."""

    model: Model
    tensors: tuple[torch.Tensor, ...]
    ready: Mark  # reached when its tensors are computed
    since: float
    taken: int = 0  # rows that are in a batch already
    passed: int = 0  # consecutive batches without rows of this call
    results: list[torch.Tensor] = field(default_factory=list)
    batches: list[tuple[Mark, Mark, float]] = field(default_factory=list)  # begin, end, this call's share
    error: Exception | None = None
    done: bool = False

    @property
    def rows(self) -> int:
        return len(self.tensors[0])

    @property
    def key(self) -> object:
        """Return the properties that calls of one batch share."""
        return id(self.model), *((tensor.shape[1:], tensor.dtype) for tensor in self.tensors)

    def seconds(self) -> float:
        """Return the device's seconds for this call: its share of each batch. Waits until they are known."""
        return sum(share * begin.seconds_to(end) for begin, end, share in self.batches)


Part = tuple[Call, int, int]
"""A call, its first row in a batch, and the row after its last."""


def next_batch(calls: list[Call], linger_s: float, *, may_grow: bool) -> list[Part] | float:
    """Take the next batch out of the waiting calls, oldest first, or return the seconds to wait for more rows.

    A full batch goes first. The fullest goes once the oldest call has waited for `linger_s`, or if no batch `may_grow`.
    """
    groups: dict[object, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.key, []).append(call)
    oldest, fullest = calls[0], max(groups.values(), key=_fill)  # of equal ones, the batch with the oldest call
    left = oldest.since + linger_s - time.monotonic()
    if _fill(fullest) < 1 and left > 0 and may_grow:
        return left
    group = groups[oldest.key] if oldest.passed >= _PASSED else fullest
    room, parts = group[0].model.most(group[0].tensors), []
    for call in group:
        count = min(room, call.rows - call.taken)
        parts.append((call, call.taken, call.taken + count))
        call.taken += count
        room -= count
        if call.taken == call.rows:
            calls.remove(call)
        if not room:
            break
    for call in calls:
        call.passed = 0 if call is parts[-1][0] else call.passed + 1
    return parts


def _fill(calls: Sequence[Call]) -> float:
    """Return the share of a batch that calls with equal keys fill, at most 1."""
    most = calls[0].model.most(calls[0].tensors)
    return min(1.0, sum(call.rows - call.taken for call in calls) / most)
