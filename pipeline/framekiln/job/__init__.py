"""A run from end to end, and all that it leaves in its output: tables, records, run.json and the report."""

from framekiln.job.job import Job

__all__ = ["Job"]
