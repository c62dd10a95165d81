"""Comparison of runs: the same work or not, how much faster, and how far the results agree.

comparison        all of it, each side beside the base
├── runs          an output as far as it can be read
├── partial_runs  rows of an output that other runs computed
├── fingerprints  steps and files that are the same
├── changes       placement, machine, versions
├── metrics       figures of a step and of a run
├── energy        energy of the GPUs
├── bootstrap     intervals of changes
└── drift         rows of both outputs compared
gate              conditions that fail a comparison
cells             text that both displays share
├── terminal
└── page          compare.html
"""

DRIFT_ROWS = 5000  # of each table, where nothing else is asked: drift is then known to 0.01, and reading takes seconds
