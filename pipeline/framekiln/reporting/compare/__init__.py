"""Comparison of runs: the same work or not, how much faster, and how far the results agree."""

DRIFT_ROWS = 5000  # of each table, where nothing else is asked: drift is then known to 0.01, and reading takes seconds
