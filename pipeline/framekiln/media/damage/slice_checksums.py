"""Checksums of FFV1, which archives use because its slices have them.

libav logs a wrong checksum, fills the slice with other pixels and gives the frame as whole, with `err_detect` too.
"""

import zlib

_TRAILER = 8  # bytes at a slice's end: its size in 3, its status in 1, the checksum in 4 (RFC 9043, 4.9)
_REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))  # zlib's CRC takes the lowest bit first
_START = 0xFFFFFFFF  # zlib inverts it: FFV1's CRC starts at 0 and is not inverted


class SliceChecksums:
    """The checksums of one FFV1 track. Whether it has them is known from the first slice that matches its own."""

    def __init__(self) -> None:
        self._has_checksums = False

    def match(self, packet: bytes) -> bool:
        """Return whether all slices of a frame match their checksums; true for tracks without any."""
        matches = [_matches(part) for part in _slices(packet)]
        self._has_checksums = self._has_checksums or any(matches)
        return all(matches) or not self._has_checksums


def _slices(packet: bytes) -> list[bytes]:
    """Return a frame's slices, last one first, up to a size that is impossible: the rest is one slice then."""
    slices, end = [], len(packet)
    while end:
        size = int.from_bytes(packet[max(0, end - _TRAILER) : end][:3], "big") + _TRAILER
        start = end - size if size <= end else 0
        slices.append(packet[start:end])
        end = start
    return slices


def _matches(part: bytes) -> bool:
    """Return whether the CRC-32 of a slice with its checksum is 0 (polynomial 04C11DB7, RFC 9043, 4.9.3)."""
    return zlib.crc32(part.translate(_REVERSED), _START) == _START
