"""Ray's own processes on this machine, which may be killed: without them, calls into Ray wait or end this process."""

from contextlib import suppress

import psutil
import ray
from ray._private import ray_constants

from framekiln.contract.errors import FramekilnError

_NEEDED = (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)


def dead_services() -> list[str]:
    """Return the names of processes of a local Ray that have ended though a run needs them; none of a cluster's."""
    node = getattr(ray._private.worker, "_global_node", None)
    started = node.all_processes if node is not None else {}
    return [name for name in _NEEDED if any(item.process.poll() is not None for item in started.get(name, ()))]


def services_error() -> FramekilnError:
    """Return the error of a run without Ray's own processes."""
    return FramekilnError(
        f"Ray's own process {' and '.join(dead_services())} has ended, which no run survives; the kernel's log names "
        "its OOM killer. What is finished is kept, and the same command continues from there.",
        code="FK-RAY-STOPPED",
    )


def kill_services() -> None:
    """Kill what is left of a local Ray: it would go on for a minute, and end this process without a message."""
    left = psutil.Process().children(recursive=True)
    with suppress(Exception):  # it is Ray's private function, and Ray is broken
        ray._private.worker._global_node.kill_all_processes(check_alive=False, allow_graceful=False)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
