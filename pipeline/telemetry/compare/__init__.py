"""Runs side by side: the same work, how much faster, and whether the results are still the same.

comparison      all of it, each side beside the first
├── runs        an output as far as it can be read
│   └── calls   its records of calls
├── work        fingerprints and files
├── changes     placement, machine, versions
├── measures    figures of a step and of a run
├── energy      what machines used
├── noise       how far chance moves a figure
└── drift       rows of both compared
gate            conditions that fail a comparison
printing        the terminal
page            compare.html
"""
