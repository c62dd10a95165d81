"""The report on a run, as one HTML file that can be mailed: what was run, what it found, where the time went.

It is made from the output alone (run.json and tables), so an old output can be reported on again.

page            the file, put together from the rest by a template
├── summary     what was run, the verdict, how to run it or read its tables again
├── gallery     frames with the stages' drawings
│   └── thumbnails
├── throughput  where the time went
├── faults      errors by reason
├── tables      columns under their steps
│   ├── sheets      pictures that a table holds
│   └── distributions
├── charts      SVG
├── rows        rows of tables, in bounded memory
├── rebuilt     stages as they were configured
└── words       numbers for people
"""

from pipeline.telemetry.report.page import NAME, write_report

__all__ = ["NAME", "write_report"]
