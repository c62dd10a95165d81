"""The report on a run, as one HTML file that can be mailed: what was run, what it found, where the time went.

It is made from the output alone (run.json, tables, records), so an old output can be reported on again.

page                 the file, put together from the rest by a template
├── summary            what was run, how it went, how to run it or read its tables again
├── recommendation     what to try, and the profile's targets
├── samples            each step's drawings by themselves
├── gallery            frames with what all steps say of them
│   ├── picks            which frames
│   ├── thumbnails       their pictures
│   ├── findings         all that the tables say of them
│   └── drawings         a stage's drawing as SVG
├── throughput, phases where the time went
├── recorded           what is drawn of records
│   ├── activity         what each process did in each slice of the run
│   ├── lanes            the time line, and stalls
│   └── machines         GPUs, memory and CPUs over time
├── faults             errors by reason
├── tables             columns under their steps
│   ├── sheets           pictures that a table holds
│   └── distributions
├── charts, curves     SVG
├── script             the slider, and the page's policy
├── rows               rows of tables, in bounded memory
├── rebuilt            stages as they were configured
└── words              numbers for people
"""

from pipeline.telemetry.report.page import NAME, write_report

__all__ = ["NAME", "write_report"]
