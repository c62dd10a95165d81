"""Which models are on a card together, and in what batches: chosen by what they take of it and how fast they are there.

asks      what a step may take, at one batch or another
layouts   waves that keep to a card's memory, and what each would cost
schedule  the best of them, as placements, with the reasons in words
"""

from pipeline.scheduling.schedule import CONTEXT_GB, Schedule, Wishes, schedule

__all__ = ["CONTEXT_GB", "Schedule", "Wishes", "schedule"]
