"""A run from end to end: list, plan, compute what is missing, put the tables together, say what happened.

Nothing here computes; it asks the ledger what is left and hands that to the engine. Where nothing is left, Ray is not
even started.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.assembly import Assembly, sweep
from pipeline.errors import FramemillError
from pipeline.ledger import Ledger, cover
from pipeline.machines import Node, this_machine
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.media.listing import list_media, shard
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.plan import Choices, Plan, make_plan
from pipeline.sample import Sample
from pipeline.second import ERRORS, FRAMES, SecondPass, UnitRows, unit_rows
from pipeline.storage import Store
from pipeline.tables import Tables
from pipeline.telemetry.figures import Figures


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a person asked for, names resolved."""

    input: str
    output: str
    pipeline: PipelineFile
    profile: ProfileFile
    profile_name: str
    choices: Choices
    address: str | None = None  # of a running Ray cluster; None: start Ray here
    limit: int | None = None  # files
    shard: tuple[int, int] | None = None  # number from 0, of how many


@dataclass(frozen=True, kw_only=True)
class Work:
    """What there is, and what of it is left to do."""

    plan: Plan
    nodes: Sequence[Node]
    media: Sequence[Media]
    units: Sequence[Unit]
    pending: Sequence[Unit]  # units that some first-pass step has not finished
    left: bool  # anything at all
    changed: bool  # whether the tables are others after the run than before


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run did."""

    work: Work
    frames: int
    errors: Counter[str]  # by kind
    started: float  # seconds since the epoch
    seconds: float
    figures: Figures = field(default_factory=Figures)


class Job:
    """One run into one output."""

    def __init__(
        self,
        order: Order,
        watch: Callable[[Figures], None] = lambda _: None,
        on_plan: Callable[[Work], None] = lambda _: None,
    ) -> None:
        self._order, self._watch, self._on_plan = order, watch, on_plan
        self.store = Store(order.output)
        self._figures = Figures()

    def run(self) -> Result:
        """Do what is left of the order.

        Raises:
            UserError: input, output, a name, a setting or the machines are wrong; nothing was started.
            ContractError: a stage broke its promise.
        """
        started = time.time()
        if self._order.address is None:
            work = self._prepare([this_machine()])
            if work.left:
                from pipeline.engine import session

                with session(None):
                    self._compute(work)
        else:
            from pipeline.engine import session

            with session(self._order.address) as nodes:
                work = self._prepare(nodes)
                if work.left:
                    self._compute(work)
        return self._result(work, started)

    def _prepare(self, nodes: Sequence[Node]) -> Work:
        listing = list_media(self._order.input)
        media = self._select(listing)
        plan = make_plan(self._order.pipeline, self._order.profile, self._order.choices, nodes)
        self.store.prepare()
        units = cover(self.store, listing, media, slots=plan.decode.workers)
        rows = self._rows(plan, units, media)
        done = {unit.unit for unit in rows}
        pending = [unit for unit in units if unit.name not in done]
        owners = self._owners(plan)
        left = bool(pending) or any(owner.pieces(rows) for owner in owners)
        swept = 0 if left else sweep(self.store, owners, rows)
        work = Work(
            plan=plan, nodes=nodes, media=media, units=units, pending=pending, left=left, changed=left or swept > 0
        )
        self._figures = Figures(pending)
        self._on_plan(work)
        return work

    def _select(self, listing: Sequence[Media]) -> list[Media]:
        chosen = list(listing) if self._order.shard is None else shard(listing, *self._order.shard)
        return chosen[: self._order.limit]

    def _compute(self, work: Work) -> None:
        with self.store.writing():
            self._passes(work)

    def _passes(self, work: Work) -> None:
        from pipeline.engine import Engine

        engine = Engine(work.plan, self.store, self._on_samples)
        engine.first_pass(work.pending, Ledger(self.store))
        rows = self._rows(work.plan, work.units, work.media)
        if missing := len(work.units) - len(rows):
            raise FramemillError(
                f"{missing} of {len(work.units)} units are not finished; run the same command again to go on."
            )
        owners = self._owners(work.plan)
        for owner in owners:
            engine.second_pass(owner, owner.pieces(rows))
        sweep(self.store, owners, rows)

    def _rows(self, plan: Plan, units: Sequence[Unit], media: Sequence[Media]) -> list[UnitRows]:
        return unit_rows(plan, Ledger(self.store), units, frozenset(item.media_id for item in media))

    def _owners(self, plan: Plan) -> list[SecondPass]:
        return [*(Tables(step, plan, self.store) for step in plan.second), Assembly(plan, self.store)]

    def _on_samples(self, samples: list[Sample]) -> None:
        self._figures.add(samples)
        self._watch(self._figures)

    def _result(self, work: Work, started: float) -> Result:
        kinds: Counter[str] = Counter()
        for name in self.store.names(ERRORS):
            kinds.update(self.store.read_table(f"{ERRORS}/{name}", ["kind"])["kind"].to_pylist())
        frames = sum(self.store.count_rows(f"{FRAMES}/{name}") for name in self.store.names(FRAMES))
        return Result(
            work=work,
            frames=frames,
            errors=kinds,
            started=started,
            seconds=time.time() - started,
            figures=self._figures,
        )
