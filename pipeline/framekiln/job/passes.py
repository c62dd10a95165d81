"""The passes of a run on an open engine: first columns of frames, then tables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from framekiln.contract.errors import OutputError
from framekiln.engine.base import Engine
from framekiln.job.interim import Interim
from framekiln.output.lease import Lease
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.runtime.run.result import Workload
from framekiln.runtime.second_pass.second_pass import SecondPass, UnitRows, sweep, unit_rows


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The remaining work of a run, and its engine. Each method checks the lease after each piece of work."""

    engine: Engine
    work: Workload
    store: Store
    lease: Lease

    def first(self) -> None:
        """Read the media once for each wave. Raises FramekilnError: an error that stops the run."""
        for number, wave in enumerate(self.work.waves):
            ledger = Ledger(self.store)
            if unfinished := [unit for unit in self.work.pending if not ledger.has(wave.folders, unit.name)]:
                self.engine.first_pass(number, unfinished, ledger)
            self.lease.check()

    def second(self, owners: Sequence[SecondPass], deletable: Collection[str] | None, interim: Interim) -> None:
        """Write all tables. Tables of earlier runs are removed once all new rows can be written.

        Raises OutputError: results were removed during the run.
        """
        work = self.work
        rows = unit_rows(work.plan, Ledger(self.store), work.units, work.wanted)
        if missing := len(work.units) - len(rows):
            raise OutputError(
                f"Results of {missing} of {len(work.units)} units of files were removed from {self.store.root!r} "
                "during the run, or a bucket's listing lags. Run the same command again to continue; if they are gone "
                "again, find out what removes them.",
                code="FK-OUTPUT-GONE",
            )
        sweep(self.store, owners, rows, deletable)  # no table may have a file's rows twice
        interim.release()
        self.write_tables(owners, rows)
        sweep(self.store, owners, rows, deletable)  # tables of stages are replaced

    def write_tables(self, owners: Sequence[SecondPass], rows: Sequence[UnitRows]) -> None:
        for owner in owners:
            if missing := owner.missing(rows):
                self.engine.second_pass(owner, missing)
            self.lease.check()
