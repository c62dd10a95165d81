"""Names lie, content does not: a file's kind by its first bytes, so that a JPEG called .mp4 is decoded all the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.errors import MediaError, Reason

HEAD = 4096  # bytes that `sniff` wants; MPEG transport streams repeat their mark every 188 or 192 of them


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What decodes a file: `decoder` is "jpeg", "pillow" or "video", `name` the library's name of the format."""

    decoder: str
    name: str


def _photo(name: str, decoder: str = "pillow") -> Kind:
    return Kind(decoder=decoder, name=name)


def _video(name: str) -> Kind:
    return Kind(decoder="video", name=name)


# (offset, magic, what it is). A text is something we do not decode, by the name people know it by.
_KNOWN: tuple[tuple[int, bytes, Kind | str], ...] = (
    (0, b"\xff\xd8\xff", _photo("JPEG", "jpeg")),
    (0, b"\x89PNG\r\n\x1a\n", _photo("PNG")),
    (0, b"GIF87a", _photo("GIF")),
    (0, b"GIF89a", _photo("GIF")),
    (0, b"BM", _photo("BMP")),
    (8, b"CR", "a camera raw file (CR2)"),
    (0, b"II*\x00", _photo("TIFF")),
    (0, b"MM\x00*", _photo("TIFF")),
    (0, b"II+\x00", _photo("TIFF")),
    (0, b"MM\x00+", _photo("TIFF")),
    (0, b"\x1aE\xdf\xa3", _video("matroska")),
    (0, b"\x00\x00\x01\xba", _video("mpeg")),
    (0, b"\x00\x00\x01\xb3", _video("mpegvideo")),
    (0, b"FLV\x01", _video("flv")),
    (0, b"OggS", _video("ogg")),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", _video("asf")),
    (0, b"\x00\x00\x00\x0cJXL ", "a JPEG XL photo"),
    (0, b"\xff\x0a", "a JPEG XL photo"),
    (0, b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 photo"),
    (0, b"\xff\x4f\xff\x51", "a JPEG 2000 photo"),
    (0, b"8BPS", "a Photoshop file"),
    (0, b"\x00\x00\x01\x00", "an icon (ICO)"),
    (0, b"\x00\x00\x02\x00", "a cursor (CUR) or a Targa picture"),
    (0, b"\x01\xda", "an SGI picture"),
    (0, b"%PDF", "a PDF document"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"PAR1", "a Parquet table"),
    (0, b"SQLite format 3", "a SQLite database"),
    (0, b"\x7fELF", "a program"),
    (0, b"ID3", "sound (MP3)"),
    (0, b"\xff\xfb", "sound (MP3)"),
    (0, b"fLaC", "sound (FLAC)"),
    (0, b"\x93NUMPY", "a numpy array"),
)
_RIFF: dict[bytes, Kind | str] = {b"WEBP": _photo("WEBP"), b"AVI ": _video("avi"), b"WAVE": "sound (WAV)"}
_BOXES = (
    b"moov",
    b"mdat",
    b"wide",
    b"free",
    b"skip",
    b"pnot",
    b"moof",
    b"styp",
    b"sidx",
)  # QuickTime files may start without "ftyp"
_HEIF = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_MARKUP = (
    (re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)", re.I | re.S), "a web page (HTML)"),
    (re.compile(rb"\s*(<\?xml.*?>\s*)?(<!--.*?-->\s*)*(<!doctype svg.*?>\s*)?<svg", re.I | re.S), "a drawing (SVG)"),
    (re.compile(rb"\s*<\?xml", re.I), "XML"),
    (re.compile(rb"\s*[\[{]\s*([\"\d\[{\]}-]|true|false|null)", re.I), "JSON"),
)


def sniff(head: bytes) -> Kind:
    """The kind of a file whose first `HEAD` bytes (or fewer, where it is shorter) are given.

    Raises:
        MediaError: EMPTY for no bytes; UNSUPPORTED, saying what the file looks like, for all that is not decoded.
    """
    if not head:
        raise MediaError(Reason.EMPTY, "the file is empty (0 bytes)")
    found = _by_magic(head)
    if isinstance(found, Kind):
        return found
    raise MediaError(Reason.UNSUPPORTED, f"not a photo or video that can be decoded; it looks like {found}")


def is_text(head: bytes) -> bool:
    """Whether a file starts as text: no control characters but white space, and hardly a byte that is no UTF-8."""
    if re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]", head):
        return False
    broken = head.decode("utf-8", errors="replace").count("\ufffd")
    return broken * 20 <= len(head)


def _by_magic(head: bytes) -> Kind | str:
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], "a RIFF file of another kind")
    if head[4:8] == b"ftyp":
        return _by_brand(head)
    for offset, magic, kind in _KNOWN:
        if head[offset : offset + len(magic)] == magic and not (magic == b"CR" and head[:4] != b"II*\x00"):
            return kind
    if head[4:8] in _BOXES:
        return _video("mov")
    if _is_transport_stream(head):
        return _video("mpegts")
    return _text_kind(head) if is_text(head) else "unknown binary data"


def _by_brand(head: bytes) -> Kind | str:
    size = int.from_bytes(head[:4], "big")
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, min(size, len(head)), 4))]
    if brands[0] in (b"avif", b"avis") or (
        brands[0] in (b"mif1", b"msf1") and (b"avif" in brands or b"avis" in brands)
    ):
        return _photo("AVIF")
    if brands[0] in _HEIF:
        return "a HEIC photo"
    if brands[0] == b"crx ":
        return "a camera raw file (CR3)"
    if brands[0] in (b"M4A ", b"M4B "):
        return "sound (M4A)"
    return _video("mov")


def _is_transport_stream(head: bytes) -> bool:
    for first, step in ((0, 188), (4, 192)):
        marks = head[first::step]
        if len(marks) >= 3 and set(marks) == {0x47}:
            return True
    return False


def _text_kind(head: bytes) -> str:
    return next((name for pattern, name in _MARKUP if pattern.match(head)), "plain text")
