"""Comparison of runs: the same work or not, how much faster, and how far the results agree.

comparison        all of it, each side beside the base
├── runs          an output as far as it can be read
├── fingerprints  steps and files that are the same, and what differs around them
├── metrics       figures of a step and of a run
├── bootstrap     intervals of changes
└── drift         rows of both outputs compared
gate              conditions that fail a comparison
tables            what both displays show
page              the sentence, compare.html, and the same printed
"""

DRIFT_ROWS = 5000  # of each table, where nothing else is asked: drift is then known to 0.01, and reading takes seconds
