"""A file of the local test server, and lockfile entries that name it, for tests of downloads."""

from __future__ import annotations

import random

from framekiln.weights.lockfile import Local, Url, WeightsEntry
from framekiln.weights.resolver import cache_folder
from tests.support.runs.weights_factory import sha

CONTENT = random.Random(3).randbytes(1_500_000)
OTHER = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


def entry(*sources, content=CONTENT, **changes):
    facts = {"bytes": len(content), "sha256": sha(content), "licence": "MIT", "licence_note": "", "format": "bytes"}
    checked = WeightsEntry(name="toy", file="toy.bin", sources=(Local(kind="local", note="x"),), **facts | changes)
    return checked.model_copy(update={"sources": sources})  # unchecked: the lockfile takes no plain http


def link(site, path="/toy.bin"):
    return Url.model_construct(kind="url", url=site.url + path)


def partial(toy):
    return cache_folder() / ".partial" / "toy" / f"{toy.sha256[:16]}.part"
