"""Permissions that count for root too."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_SET_BOUND, _OVERRIDES = 24, (1, 2)  # prctl's PR_CAPBSET_DROP; CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_VERSION = 0x20080522  # of the structures of capget and capset


def as_any_user() -> None:
    """Let permissions count from the next program on."""
    for capability in _OVERRIDES:
        ctypes.CDLL(None).prctl(_SET_BOUND, capability, 0, 0, 0)


@contextmanager
def permissions_count() -> Iterator[None]:
    """Let permissions count inside the block, for this thread and those that it starts."""
    libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(_VERSION, 0)
    before = (ctypes.c_uint32 * 6)()
    libc.capget(header, before)
    without = (ctypes.c_uint32 * 6)(*before)
    without[0] &= ~sum(1 << capability for capability in _OVERRIDES)  # the effective ones
    libc.capset(header, without)
    try:
        yield
    finally:
        libc.capset(header, before)
