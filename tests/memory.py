"""The most memory that this process has used.

Not `ru_maxrss`: a child inherits that from the process that started it, so a large pytest would drown what is measured.
"""

from __future__ import annotations

import re
from pathlib import Path


def peak_mb() -> float:
    """Peak resident memory since this program was started, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "Linux tells it in /proc/self/status"
    return int(found[1]) * 1024 / 1e6
