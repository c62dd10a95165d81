"""Names of the files and folders of an output, which listings of media skip."""

FRAMES = "frames"  # one row a frame, with all columns
ERRORS = "errors"  # files that could not be read, and rows that failed
IMAGES = "images"  # encoded files that columns name
COLUMNS = "columns"  # each step's part of each packet
UNITS = "units"  # files of each unit
FACTS = "facts"  # inputs of each step's fingerprint
DIGESTS = "digests"  # hashes of files' content, by path
SELECTIONS = "selections"  # rows that a person chose, by name
ROW_SETS = "row_sets"  # rows that conditions choose, by their digest
PROFILE = "profile"  # records of calls, packets and nodes
RUN_RECORD = "run.json"
REPORT = "report.html"
PREVIEW = "preview.html"  # frames by value, to choose limits
DAMAGED = "run.damaged.json"  # files that `framekiln check` found to be damaged, for the next run
LEASE_PREFIX = "run.lease-"

MARKS = frozenset({RUN_RECORD, COLUMNS, UNITS, FACTS, FRAMES, PROFILE})
"""Names that every run writes. A folder with three of them is an output."""

FOLDERS = frozenset({FRAMES, ERRORS, IMAGES, COLUMNS, UNITS, FACTS, DIGESTS, SELECTIONS, ROW_SETS, PROFILE})
"""Folders that any output may have; all others are tables of the second pass."""
