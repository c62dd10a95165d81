"""Comparison of runs: the same work or not, how much faster, and how far the results agree."""

DRIFT_ROWS = 5000  # rows of each table by default: drift is then known to 0.01, and reading takes seconds
