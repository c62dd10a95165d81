"""Whether all cores are taken: then more workers help nobody, and a place for them may not even be there."""

from __future__ import annotations

TAKEN = 0.9  # use of the processors from which another worker has next to nothing to run on; a first setting


def taken(cpu_use: float | None, *, full: bool) -> str:
    """That no further worker would help, in words; empty where one might.

    Args:
        cpu_use: of the step's machines while it worked, 0 to 1, by whomever; None where nobody measured.
        full: whether the plan has no place for another of its workers.
    """
    used = "" if cpu_use is None else f" (CPU {100 * cpu_use:.0f} %)"
    if cpu_use is not None and cpu_use >= TAKEN:
        return f"all cores are taken{used}"
    return f"no core is left for one more worker{used}" if full else ""
