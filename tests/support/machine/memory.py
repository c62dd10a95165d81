"""Peak memory of this process.

`ru_maxrss` is unsuitable: a child inherits it from its parent, so a large pytest process would hide the measurement.
"""

from __future__ import annotations

import re
from pathlib import Path


def peak_mb() -> float:
    """Return the peak resident memory since the start of this program, in MB."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match, "needs Linux: /proc/self/status"
    return int(match[1]) * 1024 / 1e6
