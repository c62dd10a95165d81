"""How a model's time changes from one card to another, and what that rests on.

A call is bound by arithmetic or by the card's memory, and which of them is not known for each of its kernels. So the
estimate takes the slower of the two ratios, and the interval reaches to the other; where little of what the card can do
was used, something else held the model back, which may take as long on any card: then the interval reaches to "as
before" too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.calibration.figures import StepFigures
from pipeline.prediction.cards import Card

LITTLE = 0.3  # share of the roofline below which something else is taken to hold a model back; a first setting


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """By what a model's time is multiplied; `quick` and `slow` are the ends of what is plausible."""

    central: float
    quick: float
    slow: float
    words: str  # what it assumes


def efficiency(figures: StepFigures, batch: int, seconds: float, card: Card) -> float | None:
    """Share of the roofline that a model reached: the least time that a row can take, by the time that it took.

    The least time is the longer of FLOPs by the card's rate and of the bytes of weights, read once a call, by its
    bandwidth. What is read of values between layers is not counted, so a model bound by that looks worse than it is.

    Returns:
        0 to 1 (more where the card's clock is above its data sheet's); None where FLOPs were not counted.
    """
    if figures.flops_per_row is None or seconds <= 0:
        return None
    arithmetic = figures.flops_per_row / (card.tflops(figures.precision) * 1e12)
    memory = (figures.weights_bytes or 0) / batch / (card.bandwidth_gb_s * 1e9)
    return max(arithmetic, memory) / seconds


def scaling(figures: StepFigures, batch: int, seconds: float, source: Card, target: Card) -> Scaling:
    """Of the model's phase, from one card to another."""
    by_arithmetic = source.tflops(figures.precision) / target.tflops(figures.precision)
    by_memory = source.bandwidth_gb_s / target.bandwidth_gb_s
    central = max(by_arithmetic, by_memory)
    reached = efficiency(figures, batch, seconds, source)
    ends = [by_arithmetic, by_memory]
    slower, other = ("arithmetic", "memory") if by_arithmetic >= by_memory else ("memory", "arithmetic")
    words = f"the model's time follows the cards' {slower} ({central:.2f} times), not their {other} ({min(ends):.2f})"
    if reached is None or reached < LITTLE:
        ends.append(1.0)
        used = "an unknown share" if reached is None else f"{reached:.0%}"
        words = (
            f"it used {used} of what its card can do; the rest may not change with the card ({central:.2f} times or 1)"
        )
    return Scaling(central=central, quick=min(ends), slow=max(ends), words=words)
