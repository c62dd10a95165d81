"""Pages as headless Chromium lays them out: a script reads the rendered geometry, a screenshot shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')  # forbids scripts other than the page's own
_ANSWER = re.compile(r"<pre>(.*?)</pre>", flags=re.S)


def browser():
    """Return the path of a browser; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (apt-get install chromium)")
    return found


def rendered(html, script, folder, width=1280, height=900):
    """Return what a script reads from a page that is laid out.

    Args:
        html: the page.
        script: a JavaScript expression of a value that JSON can hold.
        folder: for the page and the browser's own files.
        width: of the page's window in px.
        height: of the page's window in px.
    """
    probe = f"<script>addEventListener('load', () => parent.answer(JSON.stringify({script})))</script>"
    answer = (
        "window.answer = (text) => { document.body.innerHTML = '<pre>'; document.body.firstChild.textContent = text }"
    )
    probed = _POLICY.sub("", html).replace("</body>", f"{probe}</body>")
    page = _framed(probed, f"<script>{answer}</script>", folder, width, height)
    dom = _chromium(folder, "--dump-dom", page.as_uri())
    found = _ANSWER.search(dom)
    assert found, dom[-2000:]
    return json.loads(unescape(found[1]))


def screenshot(html, picture, folder, width=1280, height=4000):
    """Write a PNG of a page's upper part."""
    size = f"--window-size={max(width, 500)},{height}"
    _chromium(folder, f"--screenshot={picture}", size, _framed(html, "", folder, width, height).as_uri())


def _framed(html, script, folder, width, height):
    """Write a page with the page in a frame: Chromium's own window is never narrower than 500 px."""
    frame = f'<iframe srcdoc="{escape(html)}" style="width:{width}px;height:{height}px;border:0"></iframe>'
    page = folder / "framed.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0">{script}{frame}</body>', "utf-8")
    return page


def _chromium(folder, *words):
    """Return what the browser prints."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder / 'chromium'}", *words]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
