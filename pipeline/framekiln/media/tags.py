"""Tags of files, as names and texts: EXIF, XMP, IPTC and text of photos, tags of video containers.

Names have the prefix of their standard: `exif:DateTimeOriginal`, `gps:GPSLatitude`, `xmp:Rating`, `iptc:Keywords`,
`text:Software`, and `film:creation_time` or `track:handler_name`; those of a sidecar are `sidecar:xmp:Rating`.
`iptc:IsNewer` is present if a program changed IPTC's tags after those of XMP. Numbers are decimal, several with spaces
between. `c2pa` is present if the file holds content credentials. Tags never
make a file unreadable: unreadable tags are left out.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import md5
from html import unescape
from typing import Any

from PIL import ExifTags, ImageFile
from PIL import Image as Pil

Tags = Mapping[str, str]

_SIDECAR = "sidecar:"
_KEYWORDS_END = ";"  # after each keyword: Lightroom and Windows end keywords with it, so none contains it
_SHOWN = ("xmp:", "iptc:", "exif:XP")  # prefixes of tags that are text already
_MOST_TAGS, _LONGEST = 200, 500  # characters; a camera's values are shorter, its own notes are longer
_LONGEST_LIST = 2000  # characters of keywords: agencies allow 50 words
_IFDS = ((None, "exif:", ExifTags.TAGS), (0x8769, "exif:", ExifTags.TAGS), (0x8825, "gps:", ExifTags.GPSTAGS))
_SPACES = "xmp|exif|tiff|photoshop|dc|aux|exifEX|Iptc4xmpCore|MicrosoftPhoto"  # prefixes of properties in XMP
_ATTRIBUTE = re.compile(rf'\b((?:{_SPACES}):\w+)\s*=\s*(?:"([^"<>]*)"|\'([^\'<>]*)\')')
# Nothing is read twice (`++`), so the time is linear in the length for any text.
_ITEMS = r"<rdf:\w+>\s*+((?:<rdf:li[^<>]*+>[^<>]*+</rdf:li>\s*+)++)"
_ELEMENT = re.compile(rf"<((?:{_SPACES}):\w+)>\s*+(?:{_ITEMS}|([^<>]++))")
_ITEM = re.compile(r"<rdf:li([^<>]*+)>([^<>]*+)</rdf:li>")
_DEFAULT = re.compile(r"xml:lang\s*=\s*[\"']x-default[\"']")
_C2PA = (b"c2pa", bytes.fromhex("d8fec3d61b0e483c92975828877ec481"))  # in a JUMBF box; the UUID of a box of MP4
CREDENTIALS_WITHIN = 1 << 20  # bytes from the start of a file


def read_photo_tags(data: bytes, image: ImageFile.ImageFile) -> Tags:
    """Return the tags of an opened photo; `data` is the file."""
    found: dict[str, str] = {}
    for pairs in (_read_exif(image), _read_xmp(image), _read_iptc(image), _read_text(image)):
        with suppress(Exception):  # damaged tags raise all kinds of errors
            for name, value in pairs:
                if len(found) < _MOST_TAGS and (text := value if name.startswith(_SHOWN) else _show(value)):
                    found[name] = text
    return {**found, **find_credentials(data)}


def read_film_tags(container: Any, track: Any) -> Tags:
    """Return the tags of an opened film, of its container and of its video track."""
    found: dict[str, str] = {}
    for prefix, tags in (("film:", container.metadata), ("track:", track.metadata)):
        pairs = list(tags.items())[:_MOST_TAGS]
        found |= {prefix + str(name): text for name, value in pairs if (text := _show(value))}
    return found


def read_sidecar_tags(data: bytes) -> Tags:
    """Return the tags of an XMP file, named `sidecar:xmp:Rating`; none if it is no XMP."""
    found: dict[str, str] = {}
    with suppress(Exception):
        for name, value in _parse_xmp(data.decode("utf-8", "replace")):
            if len(found) < _MOST_TAGS and value:
                found[_SIDECAR + name] = value
    return found


def find_credentials(data: bytes) -> Tags:
    """Return `c2pa` if the first megabyte of a file holds content credentials; they are not verified."""
    head = data[:CREDENTIALS_WITHIN]
    return {"c2pa": "present"} if (b"jumb" in head and _C2PA[0] in head) or _C2PA[1] in head else {}


def _read_exif(image: Pil.Image) -> Iterator[tuple[str, Any]]:
    exif = image.getexif()
    for number, prefix, names in _IFDS:
        with suppress(Exception):
            for tag, value in (exif if number is None else exif.get_ifd(number)).items():
                if tag in _WINDOWS and isinstance(value, bytes):
                    yield prefix + names[tag], _read_windows(tag, value)
                elif tag in names and tag not in (0x8769, 0x8825, 0x927C, 0x9286):  # offsets, maker's note, comment
                    yield prefix + names[tag], _decode_again(value) if isinstance(value, str) else value


_XP_AUTHOR, _XP_KEYWORDS = 0x9C9D, 0x9C9E
_WINDOWS = range(0x9C9B, 0x9CA0)  # XPTitle to XPSubject: UTF-16, several authors or keywords with ; between them


def _read_windows(tag: int, value: bytes) -> str:
    text = value.decode("utf-16-le", "replace")
    if tag == _XP_KEYWORDS:
        return _list_words(text.split(_KEYWORDS_END))
    return _show(text.split(_KEYWORDS_END)[0] if tag == _XP_AUTHOR else text)


def _read_xmp(image: Pil.Image) -> Iterator[tuple[str, str]]:
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    text = packet.decode("utf-8", "replace") if isinstance(packet, bytes) else str(packet)
    yield from _parse_xmp(text[:CREDENTIALS_WITHIN])


def _parse_xmp(text: str) -> Iterator[tuple[str, str]]:
    """Yield properties by expressions: XML entities, which may grow without end, are never expanded."""
    for match in _ATTRIBUTE.finditer(text):
        yield _name_xmp(match[1]), _show(unescape(match[2] or match[3] or ""))
    for match in _ELEMENT.finditer(text):
        found = _ITEM.findall(match[2] or "") or [("", match[3] or "")]
        items = [unescape(item) for _, item in found]
        place = next((place for place, (language, _) in enumerate(found) if _DEFAULT.search(language)), 0)
        yield _name_xmp(match[1]), _list_words(items) if match[1] == "dc:subject" else _show(items[place])


def _name_xmp(name: str) -> str:
    return name if name.startswith("xmp:") else f"xmp:{name}"


_PHOTOSHOP_IPTC, _PHOTOSHOP_DIGEST, _TIFF_IPTC = 0x0404, 0x0425, 33723
_IPTC = {5: "iptc:ObjectName", 80: "iptc:By-line", 120: "iptc:Caption"}
_KEYWORD, _DATE, _TIME = 25, 55, 60


def _read_iptc(image: ImageFile.ImageFile) -> Iterator[tuple[str, str]]:
    """Yield tags of IPTC's IIM, of JPEG and TIFF."""
    photoshop = image.info.get("photoshop") or {}
    tiff = getattr(getattr(image, "tag_v2", None), "_tagdata", {})  # the tag's type is mostly wrong
    block = photoshop.get(_PHOTOSHOP_IPTC) or tiff.get(_TIFF_IPTC, b"")
    found = defaultdict[int, list[str]](list)
    for number, value in _read_datasets(block):
        found[number].append(_decode(value))
    for number, name in _IPTC.items():
        yield name, _show(next(iter(found[number]), ""))
    yield "iptc:Keywords", _list_words(found[_KEYWORD])
    for date in found[_DATE][:1]:  # 20230701, and 102030+0200, or no time
        times = (f"T{time[:2]}:{time[2:4]}:{time[4:]}" for time in found[_TIME])
        yield "iptc:DateCreated", _show(f"{date[:4]}-{date[4:6]}-{date[6:]}{next(times, '')}")
    digest = photoshop.get(_PHOTOSHOP_DIGEST)
    if digest and digest != md5(block, usedforsecurity=False).digest():
        yield "iptc:IsNewer", "true"


def _read_datasets(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each dataset in record 2, up to damage."""
    at = 0
    while at + 5 <= len(block) and block[at] == 0x1C:
        record, number = block[at + 1 : at + 3]
        size, start = int.from_bytes(block[at + 3 : at + 5]), at + 5
        if size & 0x8000:  # the size of the size
            start += size & 0x7FFF
            size = int.from_bytes(block[at + 5 : start])
        at = start + size
        if record == 2 and at <= len(block):
            yield number, block[start:at]


def _decode(text: bytes) -> str:
    """Return text in UTF-8 as most programs write it, or in Windows' code for Western Europe."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("cp1252", "replace")


def _decode_again(text: str) -> str:
    """Return text that Pillow took for Latin-1: EXIF allows ASCII alone, and most programs write UTF-8 all the same."""
    return _decode(text.encode("latin-1")) if not text.isascii() and max(text) < "\u0100" else text


def _list_words(words: Sequence[str]) -> str:
    listed = "".join(f"{_show(word)}{_KEYWORDS_END}" for word in words)
    return listed[:_LONGEST_LIST].rpartition(_KEYWORDS_END)[0]


def _read_text(image: Pil.Image) -> Iterator[tuple[str, Any]]:
    for name, value in dict(getattr(image, "text", None) or {}).items():
        if name != "XML:com.adobe.xmp":
            yield f"text:{name}", value


def _show(value: Any) -> str:
    """Return a value as text: printable, on one line, at most 500 characters; empty if it is no text or number."""
    if isinstance(value, tuple | list):
        return " ".join(map(_show, value[:16]))
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace") if len(value) > 4 else " ".join(map(str, value))
    if isinstance(value, str):
        shown = "".join(char if char.isprintable() else " " for char in value.split("\0")[0])
        return " ".join(shown.split())[:_LONGEST]
    number = float(value)  # of a rational; a division by zero gives none
    return f"{number:.10g}" if math.isfinite(number) else ""
