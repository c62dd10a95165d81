"""What tests of downloads share: a file that a site of our own has, and entries of a lockfile that name it."""

from __future__ import annotations

import hashlib
import random

from pipeline.weights import Entry, Local, Url, cache_folder

CONTENT = random.Random(3).randbytes(1_500_000)
OTHER = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


def sha(content):
    return hashlib.sha256(content).hexdigest()


def entry(*sources, content=CONTENT, **changes):
    facts = {"bytes": len(content), "sha256": sha(content), "licence": "MIT", "licence_note": "", "format": "bytes"}
    checked = Entry(name="toy", file="toy.bin", sources=(Local(kind="local", note="x"),), **facts | changes)
    return checked.model_copy(update={"sources": sources})  # unchecked: the lockfile takes no plain http


def link(site, path="/toy.bin"):
    return Url.model_construct(kind="url", url=site.url + path)


def partial(toy):
    return cache_folder() / ".partial" / "toy" / f"{toy.sha256[:16]}.part"
