"""Entries of a lockfile, and a wheel with their members, for tests of weights."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import yaml

from framekiln.weights.lockfile import load_lock

CONTENT = bytes(range(256)) * 40
MEMBERS = {"toy/detector.bin": b"detector" * 11, "toy/marks.bin": b"landmarks" * 13}


def sha(content):
    return hashlib.sha256(content).hexdigest()


def body(name="toy", content=CONTENT, **changes):
    source = {"kind": "url", "url": f"https://example.org/{name}.bin"}
    facts = {
        "file": f"{name}.bin",
        "bytes": len(content),
        "sha256": sha(content),
        "licence": "MIT",
        "licence_note": "",
        "format": "bytes",
    }
    return {"name": name} | facts | {"sources": [source]} | changes


def lock_of(*bodies):
    return load_lock(yaml.safe_dump({item.pop("name"): item for item in map(dict, bodies)}))


def bundle_source():
    parts = [
        {"name": Path(member).name, "member": member, "sha256": sha(content)} for member, content in MEMBERS.items()
    ]
    parts[1] |= {"patches": [{"at": 0, "hex": b"LAND".hex()}], "append": base64.b64encode(b"tail").decode()}
    return {"kind": "bundle", "package": "toymodels", "version": "1.2", "parts": parts}


def make_wheel(folder, members=MEMBERS):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toymodels-1.2-cp311-cp311-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    return path
