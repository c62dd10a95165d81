"""A run from end to end, and its output: tables, records, run.json and the report."""

from framekiln.job.job import Job

__all__ = ["Job"]
