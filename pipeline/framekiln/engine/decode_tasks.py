"""The work of each decode task, so that few tasks do most of the work and the last ones are short.

Ray takes 0.02 to 0.2 s from the end of a task to the start of the next. So the first tasks are long. A slot that has no
task left waits for the last ones to end. So each task takes a fixed share of what is left, which shrinks to one unit
(guided self-scheduling: Polychronopoulos and Kuck, IEEE Transactions on Computers C-36, 1987).
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")

_TASK_UNITS = 8  # ten seconds of small photos: the most that a dying task loses
_SHARE = 1.2  # of what is left, a task takes 1 / (this * slots): by simulation, the fewest tasks with a tail of 1 %


def divide_into_tasks(units: Sequence[Sequence[tuple[T, int]]], slots: int) -> list[tuple[T, ...]]:
    """Return the work of each decode task, long ones first: a share of a film, or several small units.

    `units` holds each unit's pieces with their sizes; a unit of several pieces is a film. `slots` tasks run at once.
    """
    films = [(piece,) for pieces in units if len(pieces) > 1 for piece, _ in pieces]
    small = [pieces[0] for pieces in units if len(pieces) == 1]
    left = sum(size for _, size in small)
    tasks: list[tuple[T, ...]] = []
    begin = 0
    while begin < len(small):
        totals = [*accumulate(size for _, size in small[begin : begin + _TASK_UNITS])]
        number = max(1, sum(total <= left / (_SHARE * slots) for total in totals))
        tasks.append(tuple(piece for piece, _ in small[begin : begin + number]))
        left -= totals[number - 1]
        begin += number
    return [*films, *tasks]
