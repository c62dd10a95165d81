"""Weights come from the internet and decide every result, so none is used that differs from the lockfile by one byte.

`manifests/models.yaml` names each file with its size, sha256, licence and sources; this package turns such names into
verified local paths. Only `fetch` and what it uses touch the network, and no run calls it.
"""

from pipeline.weights.advice import explain, fetch_command, refuse_unaccepted
from pipeline.weights.locate import cache_folder, default_lock, fingerprint, locate, resolve, search
from pipeline.weights.lock import Bundle, Entry, Local, Member, Url, Wheel, load_lock

__all__ = [
    "Bundle",
    "Entry",
    "Local",
    "Member",
    "Url",
    "Wheel",
    "cache_folder",
    "default_lock",
    "explain",
    "fetch_command",
    "fingerprint",
    "load_lock",
    "locate",
    "refuse_unaccepted",
    "resolve",
    "search",
]
