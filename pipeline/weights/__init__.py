"""Weights come from the internet and decide every result, so none is used that differs from the lockfile by one byte.

`manifests/models.yaml` names each file with its size, sha256, licence and sources; this package turns such names into
verified local paths without touching the network.
"""

from pipeline.weights.locate import cache_folder, default_lock, fingerprint, locate, resolve
from pipeline.weights.lock import Bundle, Entry, Local, Member, Url, load_lock

__all__ = [
    "Bundle",
    "Entry",
    "Local",
    "Member",
    "Url",
    "cache_folder",
    "default_lock",
    "fingerprint",
    "load_lock",
    "locate",
    "resolve",
]
