"""The steps that a run left out since their weights are missing: what a first run's user should read last and first."""

from collections.abc import Collection


def left_out(skipped: Collection[str], computed: int, *, tense: str = "were") -> str:
    """Return a sentence on the steps that were left out, beside the number of computed ones; empty if none was.

    >>> left_out(["faces", "identities"], 14)
    '2 of 16 steps were left out for want of weights: faces, identities.'
    """
    if not skipped:
        return ""
    if len(skipped) == 1:
        tense = {"were": "was", "are": "is"}[tense]
    total = computed + len(skipped)
    return f"{len(skipped)} of {total} steps {tense} left out for want of weights: {', '.join(skipped)}."


def fetching(megabytes: float) -> str:
    """Return what the command that follows does."""
    size = f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.3g} MB"
    return f"This fetches {size}; the same run then adds them and computes nothing twice"
