"""The last lines of a dead worker's log."""

import socket
from pathlib import Path

import ray

from framekiln.engine.last_lines import last_lines


def log_of(worker: str) -> str:
    """Return the last lines on standard error of a dead process of this machine, host:pid; empty if there are none.

    Only a private name of Ray gives the folder of its logs; without it, the usual folder is searched.
    """
    host, _, pid = worker.rpartition(":")
    if host != socket.gethostname():
        return ""
    node = getattr(ray._private.worker, "_global_node", None)
    folder = Path(node.get_logs_dir_path()) if node else Path("/tmp/ray/session_latest/logs")  # noqa: S108 - Ray's
    for path in folder.glob(f"worker-*-{pid}.err"):
        return last_lines(path.read_text(encoding="utf-8", errors="replace"))
    return ""
