"""The folder of what a machine keeps between runs: weights, compiled models, and limits of batches."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_root() -> Path:
    """Return `FRAMEKILN_CACHE`, by default the user's cache folder (~/.cache/framekiln); it need not exist.

    In a container it is a mounted folder, or each start would compile and download again.
    """
    return Path(os.environ.get("FRAMEKILN_CACHE") or user_cache_path("framekiln"))
