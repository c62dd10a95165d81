"""The report on a run as one HTML file: its outcome, its results, and where the time went.

The output alone is the source (run.json, tables, records), so that an old output can be reported on again.

page                  the file, put together by the templates
├── summary           the run, its outcome, how to run it or read its tables again
├── throughput        the bottleneck, a change to try, and times of each step
├── tables            columns under their steps, errors by step and kind
├── gallery           frames with the results of the steps, and drawings of each step alone
│   ├── findings        choice of frames, and rows of all tables about them
│   ├── thumbnails      their images, and a stage's drawing over one as SVG
│   └── contact_sheets  images in tables
└── recorded          drawings of records
    ├── timed_run       the run that the times are of
    ├── activity        shares of each process's time
    ├── timeline        lanes and stalls
    └── machines        GPUs, memory and CPUs over time
"""

from framekiln.reporting.html.page import NAME, write_report

__all__ = ["NAME", "write_report"]
