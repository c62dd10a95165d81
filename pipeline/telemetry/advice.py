"""What a run says of itself once its first batches are through: that its GPU, or its models, stand idle, and why.

Rules over the last seconds, for those who watch; what holds a whole run up is `verdict`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.failure import DECODE
from pipeline.stage import Scope
from pipeline.step import Step
from pipeline.telemetry.cores import taken
from pipeline.telemetry.live import WINDOW_SECONDS, StepNow

# First settings, not measurements.
LEAST_PACKETS = 4  # of a step: the first ones are slow, fewer are an accident
LEAST_SECONDS = WINDOW_SECONDS  # since its first packet: what the cards did before that says nothing
IDLE = 0.5  # utilisation below which a card has time for twice the work
HUNGRY = 0.5  # share of its time from which a step waits more than it works
BUSY = 0.75  # share from which a step has no time left, as in `verdict`
MODEL = 0.5  # share of a step's seconds from which the model is what it does


@dataclass(frozen=True, kw_only=True)
class Placed:
    """What the rules ask of a step's place."""

    name: str
    keeps_model: bool
    batch_rows: int | None  # None where it does not decide the size of a call
    workers: int
    full: bool = False  # whether no core is left for another of its workers

    @classmethod
    def of(cls, step: Step, *, full: bool = False) -> Placed:
        """A step of the first pass."""
        rows = step.placement.batch_rows if step.stage.scope is Scope.ROW else None
        return cls(
            name=step.name, keeps_model=step.keeps_model, batch_rows=rows, workers=step.placement.workers, full=full
        )


def advice(steps: Sequence[Placed], now: Mapping[str, StepNow], *, decode_full: bool = False) -> str:
    """One sentence where a card or a model's processes stand idle; empty where they do not, or it is too early.

    Args:
        steps: of the first pass, without decoding.
        now: their last seconds, and decoding's, by name.
        decode_full: whether no core is left for another loader.
    """
    full = {step.name for step in steps if step.full} | ({DECODE} if decode_full else set())
    ripe = [step for step in steps if step.keeps_model and _is_ripe(now.get(step.name))]
    if not ripe:
        return ""
    hungriest, card = max(ripe, key=lambda step: now[step.name].waiting), _idle_card(ripe, now)
    if now[hungriest.name].waiting >= HUNGRY and (card is not None or now[hungriest.name].device == "cpu"):
        return _hungry(hungriest, card, now, full)
    busiest = max(ripe, key=lambda step: now[step.name].busy)
    if card is not None and now[busiest.name].card is not None and now[busiest.name].process_busy >= BUSY:
        return _small(busiest, card, now[busiest.name])
    return ""


def _is_ripe(now: StepNow | None) -> bool:
    return now is not None and now.packets >= LEAST_PACKETS and now.lasted >= LEAST_SECONDS


def _idle_card(steps: Sequence[Placed], now: Mapping[str, StepNow]) -> float | None:
    """Percent that the cards of these steps are used, where the busiest of them stands idle for half of its time."""
    cards = [card for step in steps if (card := now[step.name].card) is not None]
    use = max((known for card in cards if (known := card.get("use_percent")) is not None), default=None)
    return use if use is not None and use < 100 * IDLE else None


def _hungry(step: Placed, card: float | None, now: Mapping[str, StepNow], full: Collection[str]) -> str:
    """Who it waits for decides what to change; only one that is busy itself is worth more workers."""
    mine = now[step.name].workers
    others = [name for name, one in now.items() if not one.workers & mine and one.process_busy >= BUSY]
    if not others:
        return ""
    slow = max(others, key=lambda name: now[name].busy)
    beside = slow != DECODE and DECODE in now and bool(now[slow].workers & now[DECODE].workers)
    more = "decode's workers, whose processes it shares," if beside else f"{slow}'s workers"
    less = f", or lower {step.name}'s workers from {step.workers}" if step.workers > 1 else ""
    who = f"{step.name} waits {_percent(now[step.name].waiting)} of its time for input"
    idle = f"The GPU is used {card:.0f} %: {who}" if card is not None else f"A model stands idle: {who}"
    busy = f"{slow}'s processes are busy {_percent(now[slow].process_busy)}"
    if why := taken(now[slow].cpu_use, full=(DECODE if beside else slow) in full):
        return f"{idle} while {busy}; more workers will not help, as {why}: lower {slow}'s cost{less}."
    return f"{idle} while {busy}; raise {more} in the profile{less}."


def _small(step: Placed, card: float, now: StepNow) -> str:
    said = f"The GPU is used {card:.0f} % although {step.name}'s processes are busy {_percent(now.process_busy)}"
    if now.infer < MODEL and (why := taken(now.cpu_use, full=step.full)):
        return (
            f"{said}, less than half of it in the model; more workers will not help, as {why}: lower its cost by its "
            "settings."
        )
    if now.infer < MODEL:
        return (
            f"{said}, less than half of it in the model; give {step.name} one more worker on the card in the profile."
        )
    if step.batch_rows is None:
        return ""
    return f"{said} with batches of {step.batch_rows}; raise {step.name}'s batch in the profile."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
