"""The report on a run as one HTML file: its outcome, its results, and where the time went.

The output is the only source (run.json, tables, records), so old outputs can be reported on again.
"""

from framekiln.reporting.html.page import NAME, write_report

__all__ = ["NAME", "write_report"]
