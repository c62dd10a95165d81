"""The page's only script: it lays a frame before over the one after, with a slider between; without it both are shown.

The page's policy names the script's digest, so that no other one can run, whatever a file of the collection is called.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from markupsafe import Markup


def script() -> Markup:
    """What stands between its tags."""
    return Markup((files(__package__) / "report.js").read_text("utf-8"))  # noqa: S704 - our own file


def policy() -> str:
    """The page's Content-Security-Policy: pictures in it, its own styles, and this script; nothing from elsewhere."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
