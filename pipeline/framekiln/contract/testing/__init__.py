"""The contract as checks that run on any stage, with pytest or without.

    from framekiln.contract.testing import check_stage

    def test_contract():
        check_stage(MyStage())

Each `check_*` function tests one rule. It takes a stage and a `StageSample`, and raises an AssertionError.
"""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from framekiln.contract.placement import Placement
from framekiln.contract.stage import Media, Stage, Weights
from framekiln.contract.testing.declarations import DECLARATION_CHECKS as DECLARATION_CHECKS
from framekiln.contract.testing.results import ROW_CHECKS as ROW_CHECKS, TABLE_CHECKS as TABLE_CHECKS
from framekiln.contract.testing.sample import (
    Check as Check,
    SampleMedia as SampleMedia,
    StageSample as StageSample,
    nearly_equal as nearly_equal,
    sample_rows as sample_rows,
)


def check_stage(
    stage: Stage,
    *,
    rows: pa.Table | None = None,
    tables: Mapping[str, pa.Table] | None = None,
    media: Media | None = None,
    weights: Weights | None = None,
    placement: Placement | None = None,
    is_set_up: bool = False,
) -> None:
    """Check that a stage keeps the contract.

    Args:
        stage: the stage, as its step would configure it.
        rows: rows with its input columns; made up where None, which needs a stage that reads source columns only.
        tables: its input tables by name.
        media: the file of a stage with `reads_media`; made up where None.
        weights: local files by name, for `setup`.
        placement: for `setup`; where None, the stage's own on the CPU.
        is_set_up: true for a stage that was set up before.

    Raises:
        AssertionError: the stage breaks a rule; the message names the stage, the check and the rule.
    """
    for check in DECLARATION_CHECKS:
        _run(check, stage, StageSample(rows=pa.table({})))
    sample = StageSample(
        rows=sample_rows(stage.inputs) if rows is None else rows.select(stage.inputs),
        tables=tables or {},
        media=media or SampleMedia(),
    )
    if not is_set_up:
        stage.setup(weights or {}, placement or replace(stage.placement, device="cpu"))
    for check in ROW_CHECKS if stage.scope.first_pass else TABLE_CHECKS:
        _run(check, stage, sample)


def _run(check: Check, stage: Stage, sample: StageSample) -> None:
    try:
        check(stage, sample)
    except Exception as error:
        reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{type(stage).__name__} fails {check.__name__}: {reason}") from error
