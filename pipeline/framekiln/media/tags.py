"""Tags of files, as names and texts: EXIF, XMP, IPTC keywords and text of photos, tags of video containers.

Names have the prefix of their standard: `exif:DateTimeOriginal`, `gps:GPSLatitude`, `xmp:Rating`, `iptc:Keywords`,
`text:Software`, and `film:creation_time` or `track:handler_name`; those of a sidecar are `sidecar:xmp:Rating`. Numbers
Numbers are decimal, several with spaces between. `c2pa` is present if the file holds content credentials. Tags never
make a file unreadable: unreadable tags are left out.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import unescape
from typing import Any

from PIL import ExifTags, ImageFile, IptcImagePlugin
from PIL import Image as Pil

Tags = Mapping[str, str]

_SIDECAR = "sidecar:"
_KEYWORDS_END = ";"  # after each keyword: Lightroom and Windows end keywords with it, so none contains it
_SHOWN = ("xmp:", "iptc:")  # prefixes of tags that are text already
_MOST_TAGS, _LONGEST = 200, 500  # characters; a camera's values are shorter, its own notes are longer
_LONGEST_LIST = 2000  # characters of keywords: agencies allow 50 words
_IFDS = ((None, "exif:", ExifTags.TAGS), (0x8769, "exif:", ExifTags.TAGS), (0x8825, "gps:", ExifTags.GPSTAGS))
_SPACES = "xmp|exif|tiff|photoshop|dc|aux|exifEX|Iptc4xmpCore"  # prefixes of XMP's own and the cameras' properties
_ATTRIBUTE = re.compile(rf'\b((?:{_SPACES}):\w+)\s*=\s*(?:"([^"<>]*)"|\'([^\'<>]*)\')')
# Nothing is read twice (`++`), so the time is linear in the length for any text.
_ITEMS = r"<rdf:\w+>\s*+((?:<rdf:li[^<>]*+>[^<>]*+</rdf:li>\s*+)++)"
_ELEMENT = re.compile(rf"<((?:{_SPACES}):\w+)>\s*+(?:{_ITEMS}|([^<>]++))")
_ITEM = re.compile(r">([^<>]*+)</rdf:li>")
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
                if tag in names and tag not in (0x8769, 0x8825, 0x927C, 0x9286):  # offsets, maker's note, comment
                    yield prefix + names[tag], value


def _read_xmp(image: Pil.Image) -> Iterator[tuple[str, str]]:
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    text = packet.decode("utf-8", "replace") if isinstance(packet, bytes) else str(packet)
    yield from _parse_xmp(text[:CREDENTIALS_WITHIN])


def _parse_xmp(text: str) -> Iterator[tuple[str, str]]:
    """Yield properties by expressions: XML entities, which may grow without end, are never expanded."""
    for match in _ATTRIBUTE.finditer(text):
        yield _name_xmp(match[1]), _show(unescape(match[2] or match[3] or ""))
    for match in _ELEMENT.finditer(text):
        items = [unescape(item) for item in _ITEM.findall(match[2] or "")] or [unescape(match[3] or "")]
        yield _name_xmp(match[1]), _list_words(items) if match[1] == "dc:subject" else _show(items[0])


def _name_xmp(name: str) -> str:
    return name if name.startswith("xmp:") else f"xmp:{name}"


def _read_iptc(image: ImageFile.ImageFile) -> Iterator[tuple[str, str]]:
    """Yield the keywords of IPTC's IIM (dataset 2:25), in UTF-8 as most programs write them, or in Latin-1."""
    words = (IptcImagePlugin.getiptcinfo(image) or {}).get((2, 25), [])
    texts = []
    for word in [words] if isinstance(words, bytes) else words:
        try:
            texts.append(word.decode("utf-8"))
        except UnicodeDecodeError:
            texts.append(word.decode("latin-1"))
    yield "iptc:Keywords", _list_words(texts)


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
