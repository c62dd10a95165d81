"""Hostile names and texts have no effect in the report, and its commands run when pasted."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from html import unescape

from framekiln.contract.row_errors import Failure
from framekiln.media.media_ids import media_id
from framekiln.media.samples import photos
from tests.support.runs.report_factory import output, step
from tests.support.runs.report_reader import HOSTILE, LOADS, folder, page, parsed, store

__all__ = ["folder", "store"]


def test_the_page_is_balanced_and_loads_nothing(store):
    tags = parsed(page(store))
    assert tags.names.isdisjoint({"link", "iframe", "object", "embed", "base", "form"})
    loads = {value for name, value in tags.attributes if name in LOADS}
    assert {value[0] for value in loads} == {"#", "d"}, "links and images, and nothing else"
    assert all(value.startswith(("#", "data:image/jpeg;base64,")) for value in loads)
    assert not any(
        re.search(r"https?:|//", value) for name, value in tags.attributes if name not in ("href", "aria-label")
    )
    assert "url(" not in page(store)
    assert "@import" not in page(store)
    (only,) = tags.scripts
    assert only.keys() == {"text"}
    digest = base64.b64encode(hashlib.sha256(only["text"].encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
    assert tags.policy == policy + "base-uri 'none'; form-action 'none'"


def test_links_inside_the_page_lead_somewhere(store):
    tags = parsed(page(store))
    targets = {value for name, value in tags.attributes if name == "id"}
    links = {value[1:] for name, value in tags.attributes if name == "href" and value.startswith("#")}
    assert links and links <= targets


def test_hostile_names_are_shown_as_text(tmp_path):
    source = photos()["flower.jpg"].read_bytes()
    for name in HOSTILE:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source)
        path.with_suffix(".broken").write_bytes(source[:200])
    failures = [Failure(media_id=name, step=name, kind=name, message=name, traceback=name) for name in HOSTILE]
    extra = {
        "arguments": ["--input", *HOSTILE],
        "processor": HOSTILE[0],
        "profile_name": HOSTILE[1],
        "system": HOSTILE[4],
    }
    bad = HOSTILE[6]
    store = output(
        tmp_path / "in",
        tmp_path / f"out {HOSTILE[1]}",
        failures,
        steps={"marked": step(word=bad), bad: step(bad)},
        **extra,
    )
    html = page(store)
    tags = parsed(html)
    assert "img" not in tags.names and len(tags.scripts) == 1 and "<b>bold" not in html
    assert [name for name, _ in tags.attributes if name.startswith("on")] == []
    seen = {value.rpartition(", frame ")[0] for name, value in tags.attributes if name == "aria-label"}
    assert set(map(media_id, HOSTILE)) <= seen
    assert "{{7*7}}" in html
    assert "alert(4)" in html


def test_keys_of_a_bucket_are_not_shown(folder, tmp_path):
    secret = "s3://AKIAKEY:verysecret@bucket/photos"  # an address with credentials, as pyarrow takes it
    html = page(output(folder, tmp_path / "out", input=secret, arguments=["--input", secret]))
    assert "verysecret" not in html
    assert "s3://bucket/photos" in html


# To paste


def test_the_command_can_be_pasted(store, folder, tmp_path):
    line = re.search(r"<pre>(framekiln .*?)</pre>", page(store))[1]
    words = ["--input", str(folder), "--output", str(tmp_path / "out"), "--set", "marked.word=a b"]
    assert shlex.split(unescape(line)) == ["framekiln", "run", *words]
