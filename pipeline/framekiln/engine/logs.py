"""The last lines of a dead worker's log."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import ray

_LINES = 20
_NOISE = re.compile(r"^:|^Extension modules:|^PC: @|^ +@ +0x|logging\.cc|/site-packages/ray/")  # Ray's, faulthandler's
_LONGEST = 300  # of a line


def last_lines(worker: str) -> str:
    """Return the last lines on standard error of a dead process of this machine, host:pid; empty if there are none.

    Only a private name of Ray gives the folder of its logs; without it, the usual folder is searched.
    """
    host, _, pid = worker.rpartition(":")
    if host != socket.gethostname():
        return ""
    node = getattr(ray._private.worker, "_global_node", None)
    folder = Path(node.get_logs_dir_path()) if node else Path("/tmp/ray/session_latest/logs")  # noqa: S108 - Ray's
    for path in folder.glob(f"worker-*-{pid}.err"):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join([line[:_LONGEST] for line in lines if not _NOISE.search(line)][-_LINES:])
    return ""
