"""Difference of a model's outputs from those in fp32, and its speed beside fp32's, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from framekiln.device import wait
from framekiln.lab.measure.timed import TimeLimits, timed
from framekiln.lab.models.factory import tensors_in
from framekiln.lab.output.cells import Drift, SpeedUp

TURNS = 5
"""Turns of two variants, A B A B ...: other load of the machine then disturbs both."""
SLOW_S = 1.0  # of a call, from which one turn is enough: it takes two calls of each

_TURN = TimeLimits(warmup=1, least=1, wanted=3, seconds=0.2, patience_s=1.0)


def drift(outputs: Any, reference: Any) -> Drift:
    """Compare floating outputs with those of a reference, all of them together in float64.

    Returns:
        The relative L2 distance, the cosine and the largest difference, None where a value is not finite, and the
        number of values that are not finite here and are in the reference. All are None for outputs without floating
        numbers, but for the last.
    """
    import torch

    pairs = list(zip(_floats(outputs), _floats(reference), strict=True))
    if not pairs:
        return Drift(rel_l2=None, cosine=None, max=None, nonfinite=0)
    ours, theirs = (torch.cat([pair[side].flatten().cpu().double() for pair in pairs]) for side in (0, 1))
    lost = int((~ours.isfinite() & theirs.isfinite()).sum())
    if lost:
        return Drift(rel_l2=None, cosine=None, max=None, nonfinite=lost)
    both = ours.isfinite() & theirs.isfinite()
    ours, theirs = ours[both], theirs[both]
    off, length = (ours - theirs), float(theirs.norm())
    cosine = float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0)) if length else None
    return Drift(
        rel_l2=float(off.norm()) / length if length else None,
        cosine=cosine,
        max=float(off.abs().max()) if len(off) else None,
        nonfinite=0,
    )


def speed_up(call: Callable[[], Any], reference: Callable[[], Any], device: str, turns: int = TURNS) -> SpeedUp:
    """Return how many times as fast a call is as a reference, by medians of calls in turns."""
    ratios = []
    for _ in range(turns):
        seconds = [_median(each, partial(wait, device)) for each in (reference, call)]
        ratios.append(seconds[0] / seconds[1])
    return SpeedUp(factor=statistics.median(ratios), low=min(ratios), high=max(ratios), turns=turns)


def _median(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    return statistics.median(timed(call, wait, _TURN, wait_each=True).seconds)


def _floats(value: Any) -> list[Any]:
    return [tensor for tensor in tensors_in(value) if tensor.is_floating_point()]
