"""Small honest stages for tests of the engine, all under one name: a pipeline file says `tests.toys:Checksum`.

Each says what it was given, so that a test can see whether that was right.
"""

from tests.toys.columns import Big, Blurs, Checksum, Double, Maybe, Neighbours, Reads, Small
from tests.toys.faulty import DiesOnce, Gate, Hungry, Liar, Picky, Unready
from tests.toys.tables import Bytes, Count, Everything, Guests, Reader, Shares, Total, Watches
from tests.toys.weighted import Bound, Greedy, KeepsRows, Meeting, Products, Seeded, SharedMemory

__all__ = [
    "Big",
    "Blurs",
    "Bound",
    "Bytes",
    "Checksum",
    "Count",
    "DiesOnce",
    "Double",
    "Everything",
    "Gate",
    "Greedy",
    "Guests",
    "Hungry",
    "KeepsRows",
    "Liar",
    "Maybe",
    "Meeting",
    "Neighbours",
    "Picky",
    "Products",
    "Reader",
    "Reads",
    "Seeded",
    "SharedMemory",
    "Shares",
    "Small",
    "Total",
    "Unready",
    "Watches",
]
