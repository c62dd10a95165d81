"""Pages as single files that can be mailed: they load no other file and use no network."""

import base64
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from framekiln.contract.errors import without_secrets
from framekiln.contract.user_files import expand, writing
from framekiln.reporting.kit import histograms, lines
from framekiln.reporting.kit.texts import coordinate, count, duration, elapsed, figure, number, share, shorten


def mark_code(text: str) -> Markup:
    """Return a text as HTML, with words between backticks as code.

    >>> mark_code("run `a < b`")
    Markup('run <code>a &lt; b</code>')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


_PAGES = Environment(  # shared by all pages; it keeps its templates: a report's take 0.2 s of a core to compile
    loader=PackageLoader("framekiln.reporting", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.globals |= {"count": count, "bars": histograms, "lines": lines}
_PAGES.filters |= {
    "code": mark_code,
    "coordinate": coordinate,
    "duration": duration,
    "elapsed": elapsed,
    "figure": figure,
    "json": partial(json.dumps, ensure_ascii=False),
    "number": number,
    "share": share,
    "shorten": shorten,
}

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # policy of pages without a script
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # not allowed in HTML, and an editor may obey them


def image_uri(data: bytes, kind: str = "jpeg") -> str:
    """Return an encoded image as a data URI."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def write_page(path: Path, html: str, **told: str) -> Path:
    """Write a page, and return its path. Raises OutputError: it cannot be written; `told`: its code and fix."""
    with writing(path, **told):
        path.write_text(html, encoding="utf-8", errors="replace")
    return path


def write_asked(path: str, html: str) -> str:
    """Write the page of `--html`, and return its path. Raises OutputError: it cannot be written."""
    told = {"code": "FK-PAGE-NOT-WRITABLE", "fix": "choose another file with --html"}
    return str(write_page(expand(path), html, **told))


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Fill a file of `templates/`, without secrets and control characters; everything except `Markup` is escaped.

    Raises UndefinedError: a name is missing.
    """
    html = without_secrets(_PAGES.get_template(template).render({"policy": _POLICY} | dict(values)))
    return _CONTROL.sub("\ufffd", html)
