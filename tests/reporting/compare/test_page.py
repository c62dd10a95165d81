"""`compare.html`: complete, accessible, and safe for hostile names."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import framekiln
from framekiln.cli.app import app
from framekiln.contract.errors import ConfigError, OutputError
from framekiln.reporting.compare.comparison import compare
from framekiln.reporting.compare.page import render
from framekiln.reporting.compare.runs import read_sides
from framekiln.reporting.kit.pages import write_asked
from tests.support.media.collections_factory import photo
from tests.support.runs.compare_factory import calls, make
from tests.support.runs.report_factory import figures, step
from tests.support.runs.report_reader import LOADS, Tags

__all__ = ["make"]

HOSTILE = "<script>alert(1)</script>'\"&"


def hostile_page(make):
    about = {
        "steps": {HOSTILE: step(word=HOSTILE), "marked": step(word="x") | {"fingerprint": "g"}},
        "figures": {HOSTILE: figures(12, 3.0), "marked": figures(12, 3.0)},
        "processor": HOSTILE,
    }
    a = make("a", calls(100))
    photo(make.folder / f"{HOSTILE.replace('/', '')}.png", 3)
    b = make("b", calls(100, ms=40.0, seed=1), **about)
    return render(compare(read_sides([a, b, make("c", **about)]), {}, drift_rows=100), [])


def test_names_are_escaped_and_nothing_is_loaded(make):
    page = hostile_page(make)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.names
    assert "&lt;script&gt;" in page
    assert [(name, value) for name, value in tags.attributes if name in LOADS and not value.startswith("#")] == []
    assert "default-src 'none'" in tags.policy and "@import" not in page and "url(" not in page


def test_tables_have_heads_with_scope_and_can_be_scrolled_by_keys(make):
    page = hostile_page(make)
    tables = re.findall(r"<div class=\"scroll\"([^>]*)>\s*<table>(.*?)</table>", page, flags=re.S)
    assert len(tables) == page.count("<table>") >= 6
    for region, table in tables:
        assert 'tabindex="0"' in region and 'role="region"' in region and "aria-label=" in region
        assert table.count("<thead>") == 1
        assert re.findall(r"<th(?![^>]*scope=)[ >]", table) == []
    ids = re.findall(r'id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)


def test_the_command_writes_the_page(make, tmp_path):
    a, b, page = make("a"), make("b"), tmp_path / "x.html"
    done = CliRunner().invoke(app, ["compare", a, b, "--html", str(page), "--fail-if", "rate<-5%", "-q"])
    assert done.exit_code == 0 and done.output == ""
    html = page.read_text()
    assert "None of 2 conditions failed." in html
    assert "prefers-color-scheme: dark" in html and 'name="viewport"' in html
    with pytest.raises(OutputError) as error:
        write_asked(str(page / "x.html"), "")
    assert error.value.code == "FK-PAGE-NOT-WRITABLE"


def test_the_path_is_checked_before_anything_is_compared(make, tmp_path):
    a, b, page = make("a"), make("b"), tmp_path / "new folder" / "deeper" / "x.html"
    done = CliRunner().invoke(app, ["compare", a, b, "--html", str(page), "--json"])
    assert done.exit_code == 0 and page.exists()
    told = json.dumps({**framekiln.compare(a, b).to_dict(), "page": str(page)})
    assert json.loads(done.stdout) == json.loads(told)
    for wrong, code in ((page / "x.html", "FK-NOT-A-FOLDER"), (page.parent, "FK-IS-A-FOLDER")):
        done = CliRunner().invoke(app, ["compare", "nowhere", "at-all", "--html", str(wrong)])
        assert isinstance(done.exception, ConfigError) and done.exception.code == code


def test_a_difference_for_the_worse_is_marked_and_noise_is_not(make):
    a, slow = make("a", calls(400)), make("b", calls(400, ms=30.0, seed=1))
    page = render(compare(read_sides([a, slow]), {}, drift_rows=0), [])
    assert 'class="bad"><bdi>+' in page
    equal = render(compare(read_sides([a, make("c", calls(400, seed=2))]), {}, drift_rows=0), [])
    assert ">none<" in equal and 'class="bad">' not in equal
