"""A run from end to end: list, plan, compute what is missing, put the tables together, say what happened.

Nothing here computes; it asks the ledger what is left and hands that to the engine. Where nothing is left, Ray is not
even started.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.again import Which, mark
from pipeline.assembly import Assembly, refuse_foreign, sweep
from pipeline.errors import ConfigError, GoneError, OutputError
from pipeline.identity import with_digests
from pipeline.lease import Lease
from pipeline.ledger import Ledger, divide, in_order, read_units, write_units
from pipeline.machines import Node, this_machine
from pipeline.media.listing import in_shard, list_media, shard
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.order import Order
from pipeline.plan import Plan, idle_cap, make_plan
from pipeline.reasons import Changes, Outlook, facts_path, find_changes, outlooks, remember
from pipeline.sample import Reading, Sample
from pipeline.second import ERRORS, FRAMES, SecondPass, UnitRows, unit_rows
from pipeline.stage import Scope
from pipeline.storage import Store
from pipeline.tables import Tables
from pipeline.telemetry.figures import Figures
from pipeline.telemetry.profiles import RunProfile, gathered, profile_of
from pipeline.work import Result, Work

if TYPE_CHECKING:
    from pipeline.engine import Engine


class Job:
    """One run into one output."""

    def __init__(
        self,
        order: Order,
        watch: Callable[[Figures], None] = lambda _: None,
        on_plan: Callable[[Work], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
        on_result: Callable[[Result], None] = lambda _: None,
    ) -> None:
        """Bind.

        Args:
            order: what to do.
            watch: told how far it is.
            on_plan: told what there is to do, before it is done.
            on_wait: told, in a sentence, why nothing is begun yet.
            on_result: told the result while the output is still ours, to write about it there.
        """
        self._order, self._watch, self._on_plan = order, watch, on_plan
        self._on_wait, self._on_result = on_wait, on_result
        self.store = Store(order.output)
        self._figures = Figures()

    def run(self) -> Result:
        """Do what is left of the order.

        Raises:
            UserError: input, output, a name, a setting or the machines are wrong, and nothing was started; or the
                output cannot be written any more, or is another run's.
            ContractError: a stage broke its promise.
        """
        started, address = time.time(), self._order.address
        with ExitStack() as stack:
            nodes: Sequence[Node] = [this_machine()]
            if address is not None:
                from pipeline.engine import session

                nodes = stack.enter_context(session(address))
            listing = self._listed()
            plan = self._plan(nodes)
            cap = idle_cap(plan, self._order.choices)
            for told in (cap, self._order.instruments.check(plan, self.store, here=address is None)):
                if told:
                    self._on_wait(told)
            self.store.prepare()
            refuse_foreign(self.store, self._owners(plan))
            lease = stack.enter_context(Lease(self.store, self._order.shard, on_wait=self._on_wait))
            self.store = self.store.of_run(lease.run)
            self.store.sweep(lease.taken_over)
            if self._order.again is not None:
                self._mark(plan, self._order.again, self._identified(listing, keep=True))
            work = self._look(plan, nodes, self._identified(listing, keep=True))
            if work.left:
                if address is None:
                    from pipeline.engine import session

                    stack.enter_context(session(None))
                with self._recorded(lease):
                    self._passes(work, lease)
            result = self._result(work, started)
            self._on_result(result)
            return result

    def _plan(self, nodes: Sequence[Node]) -> Plan:
        """The plan; a shard's has no steps over everything, which a run without shards does at the end."""
        return self._shared(make_plan(self._order.pipeline, self._order.profile, self._order.choices, nodes))

    def preview(self, plan: Plan) -> tuple[Changes, Sequence[Outlook]]:
        """What a run by a plan would do and why; nothing is touched.

        Raises:
            InputError: there is no input.
            OutputError: the output is a file.
        """
        self.store.as_folder()
        plan, listing = self._shared(plan), self._identified(self._listed(), keep=False)
        known, fresh, wanted = self._divide(plan, listing)
        changes = find_changes(self.store, listing, fresh)
        units = in_order([*known, *fresh])
        rows = self._rows(plan, units, wanted)
        return changes, outlooks(plan, self.store, units, fresh, rows, changes)

    def _listed(self) -> list[Media]:
        return list_media(self._order.input, self._order.output, say=self._on_wait)

    def _shared(self, plan: Plan) -> Plan:
        if self._order.shard is None:
            return plan
        return replace(plan, second=tuple(step for step in plan.second if step.stage.scope is not Scope.DATASET))

    def _look(self, plan: Plan, nodes: Sequence[Node], listing: list[Media]) -> Work:
        known, fresh, wanted = self._divide(plan, listing)
        units = in_order([*known, *fresh])
        changes = find_changes(self.store, listing, fresh)
        rows = self._rows(plan, units, wanted)
        done = {unit.unit for unit in rows}
        pending = [unit for unit in units if unit.name not in done]
        owners = self._owners(plan)
        left = bool(pending) or any(owner.pieces(rows) for owner in owners)
        outlook = outlooks(plan, self.store, units, fresh, rows, changes, deep=False)
        write_units(self.store, fresh)
        remember(self.store, plan)
        swept = 0 if left else sweep(self.store, owners, rows, self._share())
        work = Work(
            plan=plan,
            nodes=nodes,
            media=self._select(listing),
            wanted=wanted,
            units=units,
            pending=pending,
            left=left,
            changed=left or swept > 0,
            files=changes,
            outlook=outlook,
        )
        self._figures = Figures(pending, len(plan.waves))
        self._on_plan(work)
        return work

    def _mark(self, plan: Plan, which: Which, listing: list[Media]) -> None:
        """Have this run try again what failed in earlier ones, and say what that is."""
        if anew := [step.name for step in plan.steps if not self.store.exists(facts_path(step))]:
            raise ConfigError(
                f"{', '.join(anew)} would give other results than before: settings, weights or versions have changed. "
                "Then all rows are computed again, and `framemill run` does that."
            )
        known, _, wanted = self._divide(plan, listing)
        found = mark(self.store, plan, known, self._rows(plan, known, wanted), self._owners(plan), which)
        self._on_wait(found.told())

    def _divide(self, plan: Plan, listing: list[Media]) -> tuple[list[Unit], list[Unit], frozenset[str]]:
        """Known units, new units, and the files whose rows belong into the tables."""
        media, sharded = self._select(listing), self._order.shard is not None
        known, fresh = divide(self.store, listing, media, slots=plan.decode.workers, sharded=sharded)
        whole = sharded and self._order.limit is None  # a unit that this shard has may hold files of others
        return known, fresh, frozenset(item.media_id for item in (listing if whole else media))

    def _identified(self, listing: list[Media], *, keep: bool) -> list[Media]:
        """The listing, with digests of the files that are ours to look at where they are told by content."""
        if not self._order.by_content:
            return listing
        ours = with_digests(self.store, self._select(listing), keep=keep, say=self._on_wait)
        return list(({media.media_id: media for media in listing} | {media.media_id: media for media in ours}).values())

    def _select(self, listing: Sequence[Media]) -> list[Media]:
        chosen = list(listing) if self._order.shard is None else shard(listing, *self._order.shard)
        return chosen[: self._order.limit]

    def _share(self) -> frozenset[str] | None:
        """The units whose files are ours to delete; None: all files are."""
        if self._order.shard is None:
            return None
        units = read_units(self.store)
        return frozenset(unit.name for unit in units if in_shard(unit.media[0].media_id, *self._order.shard))

    @contextmanager
    def _recorded(self, lease: Lease) -> Iterator[None]:
        """Processes that work inside write down what they do; what they and runs that died wrote is gathered."""
        try:
            yield
        finally:
            gathered(self.store, (lease.run, *lease.taken_over))

    def _passes(self, work: Work, lease: Lease) -> None:
        from pipeline.engine import Engine

        with closing(Engine(work.plan, self.store, self._on_samples, self._order.instruments)) as engine:
            self._computed(engine, work, lease)
        self.store.sweep(lease.taken_over)  # workers of a run that was killed live on for a moment

    def _computed(self, engine: Engine, work: Work, lease: Lease) -> None:
        for number, wave in enumerate(work.plan.waves):
            ledger = Ledger(self.store)
            engine.first_pass(
                number, [unit for unit in work.pending if not ledger.has(wave.folders, unit.name)], ledger
            )
            lease.check()
        rows = self._rows(work.plan, work.units, work.wanted)
        if missing := len(work.units) - len(rows):
            raise OutputError(
                f"Results of {missing} of {len(work.units)} units of files have gone from {self.store.root!r} during "
                "the run; look what removed them, then run the same command again to go on."
            )
        owners = self._owners(work.plan)
        for owner in owners:
            engine.second_pass(owner, owner.pieces(rows))
            lease.check()
        sweep(self.store, owners, rows, self._share())

    def _rows(self, plan: Plan, units: Sequence[Unit], wanted: frozenset[str]) -> list[UnitRows]:
        return unit_rows(plan, Ledger(self.store), units, wanted)

    def _owners(self, plan: Plan) -> list[SecondPass]:
        return [*(Tables(step, plan, self.store) for step in plan.second), Assembly(plan, self.store)]

    def _on_samples(self, samples: list[Sample | Reading]) -> None:
        self._figures.add(samples)
        self._watch(self._figures)

    def _profile(self, work: Work) -> RunProfile | None:
        """What the run's records say; a profile that cannot be read is no reason to lose a run."""
        with suppress(OutputError, OSError):
            return profile_of(self.store, self.store.run, self._order.profile.targets, work.crowded)
        return None

    def _result(self, work: Work, started: float) -> Result:
        kinds: Counter[str] = Counter()
        frames = 0
        for name in self.store.names(ERRORS):
            with suppress(GoneError):  # another shard may have replaced it
                kinds.update(self.store.read_table(f"{ERRORS}/{name}", ["kind"])["kind"].to_pylist())
        for name in self.store.names(FRAMES):
            with suppress(GoneError):
                frames += self.store.count_rows(f"{FRAMES}/{name}")
        return Result(
            work=work,
            frames=frames,
            errors=kinds,
            started=started,
            seconds=time.time() - started,
            figures=self._figures,
            profile=self._profile(work),
        )
