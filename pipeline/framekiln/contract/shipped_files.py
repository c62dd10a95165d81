"""Readable files that are shipped with the package: pipelines, profiles, weights lockfile, GPUs.

They lie in `manifests/` at the top of a checkout. A wheel holds that folder inside the package.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(*parts: str) -> Path:
    """Return the path of a file or folder under `manifests/`.

    >>> shipped("profiles", "cpu-only.yaml").is_file()
    True
    """
    installed = _PACKAGE / "manifests"
    return (installed if installed.is_dir() else _PACKAGE.parents[1] / "manifests").joinpath(*parts)
