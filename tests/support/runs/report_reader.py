"""Reports as a browser parses them: tags, text, and hostile names."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from framekiln.reporting.html import NAME, write_report
from tests.support.media.collections_factory import collection
from tests.support.runs.report_factory import output

VOID = {"meta", "link", "br", "img", "hr", "input"}
SELF_CLOSED = {"rect", "line", "path", "image", "use"}
LOADS = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
HOSTILE = [
    "<script>alert(1)</script>.jpg",
    '" onload="alert(2)" x=".jpg',
    "' onclick='alert(3).jpg",
    "{{7*7}}{% include 'x' %}.jpg",
    "]]>--><b>bold<!--.jpg",
    "&lt;b&gt;.jpg",
    "\x1b[31mred\x1b]8;;http:x\x07.jpg",
    "javascript:alert(5).jpg",
    "</svg></figure></style><img src=x onerror=alert(4)>.jpg",
]


def page(store):
    write_report(store)
    return store.read(NAME).decode()


def text(html):
    """Return the visible text, with single spaces."""
    words = re.sub(r"<(style|title|script)>.*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", words).split())


class Tags(HTMLParser):
    """The tags and attributes of a page; open tags are tracked."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.attributes, self.policy, self.scripts = [], set(), [], "", []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]

    def handle_startendtag(self, tag, attrs):
        assert tag in SELF_CLOSED
        self.names.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1]["text"] = data

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(html):
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return tags


@pytest.fixture
def folder(tmp_path):
    """Three photos and a clip of nine frames."""
    return collection(tmp_path / "in", 3, 9)


@pytest.fixture
def store(folder, tmp_path):
    return output(folder, tmp_path / "out")
