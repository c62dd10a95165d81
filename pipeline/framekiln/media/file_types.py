"""File types by their first bytes, so that a JPEG named .mp4 is decoded.

The name only shows whether a file was meant to be media. A file that is no media by name and content is passed over.
"""

import codecs
import re
from dataclasses import dataclass

from framekiln.contract.errors import MediaError, Reason

HEAD_BYTES = 4096  # bytes for `detect_kind`; MPEG transport streams repeat their sync byte every 188 or 192 bytes


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The decoder of a file ("jpeg", "pillow" or "video"), and the library's name of the format."""

    decoder: str
    name: str


def _make_photo(name: str, decoder: str = "pillow") -> Kind:
    return Kind(decoder=decoder, name=name)


def _make_video(name: str) -> Kind:
    return Kind(decoder="video", name=name)


# First bytes of files; the first match counts. A string is the common name of a type that is not decoded.
_BEGINNINGS: tuple[tuple[Kind | str, bytes], ...] = (
    (_make_photo("WEBP"), rb"RIFF.{4}WEBP"),
    (_make_video("avi"), rb"RIFF.{4}AVI "),
    ("sound (WAV)", rb"RIFF.{4}WAVE"),
    ("a RIFF file of another kind", rb"RIFF"),
    (_make_photo("JPEG", "jpeg"), rb"\xff\xd8\xff"),
    (_make_photo("PNG"), rb"\x89PNG\r\n\x1a\n"),
    (_make_photo("GIF"), rb"GIF8[79]a"),
    (_make_photo("BMP"), rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\x00\x00\x00"),  # with the length of its header
    ("a camera raw file (CR2)", rb"II\*\x00.{4}CR"),
    (_make_photo("TIFF"), rb"II[*+]\x00|MM\x00[*+]"),
    (_make_video("matroska"), rb"\x1aE\xdf\xa3"),
    (_make_video("mpeg"), rb"\x00\x00\x01\xba"),
    (_make_video("mpegvideo"), rb"\x00\x00\x01\xb3"),
    (_make_video("m4v"), rb"\x00\x00\x01\xb0"),
    (_make_video("flv"), rb"FLV\x01"),
    (_make_video("ogg"), rb"OggS"),
    (_make_video("ivf"), rb"DKIF"),
    (_make_video("yuv4mpegpipe"), rb"YUV4MPEG2 "),
    (_make_video("mxf"), rb"\x06\x0e\x2b\x34\x02\x05\x01\x01\x0d\x01\x02"),
    (_make_video("rm"), rb"\.RMF\x00"),
    (_make_video("dv"), rb"\x1f\x07\x00[\x3f\xbf]"),
    (_make_video("h264"), rb"\x00{2,3}\x01(\x09[\x10-\xf0]\x00{2,3}\x01)?[\x27\x47\x67][\x42\x4d\x58\x64\x6e\x7a\xf4]"),
    (_make_video("hevc"), rb"\x00{2,3}\x01(\x46\x01.\x00{2,3}\x01)?\x40\x01\x0c"),
    (_make_video("obu"), rb"\x12\x00\x0a[\x06-\x20]"),
    (_make_video("asf"), rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11"),
    ("a video of a rarer kind (NUT, GXF, WTV, Dirac): convert it", rb"nut/mult|\x00{4}\x01\xbc|\xb7\xd8\x00\x20|BBCD"),
    ("a JPEG XL photo", rb"\x00\x00\x00\x0cJXL |\xff\x0a"),
    (_make_photo("JPEG2000"), rb"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51"),
    (_make_photo("PPM"), rb"P[1-6]\s+(#[^\n]*\n\s*)*\d+\s+\d+\s"),
    ("a Photoshop file", rb"8BPS"),
    (
        "an image of games, films or science (DDS, EXR, HDR, PFM, PAM, QOI, JPEG XR)",
        rb"DDS |v/1\x01|#\?RADIANCE|#\?RGBE|P[7Ff]\s|qoif|II\xbc\x01",
    ),
    ("an icon (ICO)", rb"\x00\x00\x01\x00"),
    ("a cursor (CUR)", rb"\x00\x00\x02\x00(?!\x00\x00)"),
    ("an SGI image", rb"\x01\xda"),
    ("a PDF document", rb"%PDF"),
    ("an Office document or a thumbnail cache", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),  # also Thumbs.db
    (
        "a camera raw file (RW2, ORF, RAF, X3F, MRW, CRW)",
        rb"IIU\x00|IIR[OS]|MMOR|FUJIFILMCCD-RAW|FOVb|\x00MRM|II.{4}HEAP",
    ),
    ("a ZIP archive", rb"PK\x03\x04"),
    ("a packed file: unpack it", rb"\x1f[\x8b\x9d]|BZh[1-9]1AY|\xfd7zXZ\x00|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18"),
    ("a 7-Zip archive: unpack it", rb"7z\xbc\xaf\x27\x1c"),
    ("a RAR archive: unpack it", rb"Rar!"),
    ("a Parquet table", rb"PAR1"),
    ("a SQLite database", rb"SQLite format 3"),
    ("a program", rb"\x7fELF"),
    ("sound (MP3)", rb"ID3|\xff\xfb"),
    ("sound (FLAC)", rb"fLaC"),
    ("a numpy array", rb"\x93NUMPY"),
    (_make_video("mov"), rb".{4}(moov|mdat|wide|free|skip|pnot|moof|styp|sidx)"),  # QuickTime, which may lack "ftyp"
)
_PATTERNS = tuple((kind, re.compile(pattern, re.S)) for kind, pattern in _BEGINNINGS)
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"mif1")  # sequences (msf1, hevc) have a track, as videos do
# files of img2dataset and other downloaders, photo managers, subtitles and annotation tools
_SIDECAR = re.compile(r"aae|csv|ini|jsonl?|log|md|nfo|parquet|srt|tsv|txt|vtt|xml|xmp|ya?ml")  # endings of names
# Endings of photos and videos, supported or not, from ImageMagick's, libraw's and ffmpeg's lists, and of archives.
_OF_PHOTOS = re.compile(
    r"jpe?g|jpe|jfif|a?png|gif|webp|avifs?|hei[cf]s?|hif|tiff?|bmp|dib|jp2|j2k|jpx|jpf|jxl|tga|p[abgnpf]m|exr|hdr|dds|qoi|jxr|jls"
    r"|psd|psb|svg|ico|cur|sgi|dng|nef|nrw|arw|sr2|cr2|cr3|crw|raf|orf|rw2|rwl|pef|srw|x3f|mrw|3fr|fff|iiq|dcr|kdc|mef|mos|erf|raw"
)
_OF_MEDIA = re.compile(
    _OF_PHOTOS.pattern
    + r"|mp4|m4v|mov|qt|mkv|webm|avi|mpe?g|mp[12]v|m2[vtp]s?|mts|ts|vob|flv|f4v|og[vm]|wmv|asf|3g[p2]|mxf|rmv?b?|dv"
    r"|mjpe?g|h?26[45]|hevc|y4m|yuv|ivf|nut|gxf|wtv|drc|tar|zip"
)
_OF_JPEGS = ("mjpeg", "mjpg")  # consecutive photos
_OF_CODE = ("ts", "mts")  # also TypeScript and translations
_PACKED_TAR = re.compile(r"\.(tar\.(gz|bz2|xz|zst|lz4|lzma|z)|tgz|tbz2?|txz|tzst)$")
_ENDING = re.compile(r"\.([a-z][a-z0-9]{0,7})$|(?:^|/)(?:authors|changelog|copying|licen[cs]e|makefile|notice|readme)$")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TEXT = "plain text"
_TEXTUAL = ("PPM", "yuv4mpegpipe")  # formats whose header is text, and so may the rest be
_TARGA_HEADER, _TAR_BLOCK = 18, 512  # bytes
PACKETS = ((188, 0), (192, 4), (204, 0))  # bytes of a packet, and before its first sync byte
_MARKUP = (
    (re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)", re.I | re.S), "a web page (HTML)"),
    (re.compile(rb"\s*(<\?xml.*?>\s*)?(<!--.*?-->\s*)*(<!doctype svg.*?>\s*)?<svg", re.I | re.S), "a drawing (SVG)"),
    (re.compile(rb"version https://git-lfs"), "a pointer of Git LFS: run `git lfs pull`"),
    (re.compile(rb"\s*<\?xml", re.I), "XML"),
    (re.compile(rb"\s*[\[{]\s*([\"\d\[{\]}-]|true|false|null)", re.I), "JSON"),
)


def detect_kind(head: bytes) -> Kind:
    """Return the kind of a file from its first `HEAD_BYTES` bytes, or all of a shorter file.

    Raises MediaError: EMPTY for no bytes; UNSUPPORTED, with the probable type, for types that are not decoded.
    """
    if not head:
        raise MediaError(Reason.EMPTY, "the file is empty (0 bytes)")
    kind = _detect_by_beginning(head)
    if isinstance(kind, Kind):
        return kind
    raise MediaError(Reason.UNSUPPORTED, f"not a supported photo or video; it looks like {kind}")


def kind_of(name: str, head: bytes) -> Kind:
    """Return the kind of a file from its name and its first bytes; see `detect_kind`.

    A web page or text with a photo's name is no sidecar, but a broken download. A text may begin as BMP or MP4 do, so
    its name counts first. Targa has no magic number, so it needs its own ending.
    Raises MediaError: PASSED_OVER for a file that is no media by name and content; EMPTY and UNSUPPORTED.
    """
    ending = _get_ending(name)
    is_sidecar, is_media = bool(_SIDECAR.fullmatch(ending)), is_of_media(name)
    kind = _detect_by_beginning(head) if head else "an empty file"
    if is_sidecar and (kind == _TEXT or not _CONTROLS.search(head) or head.startswith((b"PAR1", *_UTF_16))):
        raise pass_over("text or a table")  # in any encoding: captions may be in Shift JIS or Windows-1251
    if ending in _OF_JPEGS and isinstance(kind, Kind) and kind.name == "JPEG":
        return _make_video("mjpeg")
    if isinstance(kind, str) and head and _PACKED_TAR.search(name.lower()):
        what = "a compressed TAR, whose members cannot be read alone; unpack it, or decompress it to .tar"
        raise MediaError(Reason.UNSUPPORTED, what)
    if ending and is_text(head) and (ending in _OF_CODE or not is_media):
        raise pass_over(kind if isinstance(kind, str) else _TEXT)
    if not ending or is_media or is_sidecar:
        return detect_kind(head)
    if isinstance(kind, str) or kind.name == "TGA":
        raise pass_over(kind if isinstance(kind, str) else "unknown binary data")
    return kind


def find_film(head: bytes) -> str:
    """Return the format of the video that begins with these bytes; empty if none does."""
    kind = _detect_by_beginning(head)
    return kind.name if isinstance(kind, Kind) and kind.decoder == "video" else ""


def is_of_media(name: str) -> bool:
    """Return whether a name has the ending of a photo, a video, or an archive of them."""
    return bool(_OF_MEDIA.fullmatch(_get_ending(name)) or _PACKED_TAR.search(name.lower()))


def is_of_photo(name: str) -> bool:
    """Return whether a name has the ending of a photo."""
    return bool(_OF_PHOTOS.fullmatch(_get_ending(name)))


def has_ending(name: str) -> bool:
    """Return whether a name's ending gives the type. "IMG.0001" and "a.jpg?w=200" do not: they may be media."""
    return bool(_get_ending(name))


def _get_ending(name: str) -> str:
    match = _ENDING.search(name.lower())
    return (match[1] or "txt") if match else ""


def pass_over(what: str) -> MediaError:
    """Return the error of a file that is no media."""
    return MediaError(Reason.PASSED_OVER, f"passed over, not media: {what}")


def is_tar(head: bytes) -> bool:
    """Return whether a file begins with the header of a TAR's member, by its checksum."""
    try:
        stated = int(head[148:156].strip(b" \0") or b"0", 8)
    except ValueError:
        return False
    return len(head) >= _TAR_BLOCK and 0 < stated == sum(head[:148]) + 8 * 32 + sum(head[156:_TAR_BLOCK])


def is_text(head: bytes) -> bool:
    """Return whether a file starts as text: no control characters but white space, at most 5 % invalid UTF-8."""
    if _CONTROLS.search(head):
        return False
    broken = head.decode("utf-8", errors="replace").count("\ufffd")
    return broken * 20 <= len(head)


def _detect_by_beginning(head: bytes) -> Kind | str:
    if is_tar(head):  # before all others, since it begins with a name
        return "a TAR archive"
    if head[4:8] == b"ftyp" and head[:4] != b"RIFF":
        return _detect_by_brand(head)
    if known := _find_magic(head):
        return known
    if (is_stream := _is_transport_stream(head)) or _is_targa(head):
        return _make_video("mpegts") if is_stream else _make_photo("TGA")
    if not is_text(head):
        return "unknown binary data"
    return next((name for pattern, name in _MARKUP if pattern.match(head)), _TEXT)


def _find_magic(head: bytes) -> Kind | str | None:
    """Return the type of a file by its first bytes; text, if they are letters before nothing but text.

    So "GIF89a is an old format" is no photo: headers of media have control characters.
    """
    for kind, pattern in _PATTERNS:
        if match := pattern.match(head):
            rest, may_be_text = head[match.end() :], isinstance(kind, Kind) and kind.name not in _TEXTUAL
            return _TEXT if may_be_text and match[0].isascii() and rest and is_text(rest) else kind
    return None


def _is_transport_stream(head: bytes) -> bool:
    """Return whether consecutive packets of an MPEG transport stream follow, even if the first one was cut."""
    if is_text(head):
        return False
    for step, whole in PACKETS:
        for first in range(step):
            marks = head[first::step]
            if len(marks) >= (3 if first == whole else 8) and set(marks) == {0x47}:
                return True
    return False


def _detect_by_brand(head: bytes) -> Kind | str:
    size = int.from_bytes(head[:4], "big")
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, min(size, len(head)), 4))]
    if brands[0] in (b"avif", b"avis", b"mif1", b"msf1") and not {b"avif", b"avis"}.isdisjoint(brands):
        return _make_photo("AVIF")
    if brands[0] in _HEIF:
        return _make_photo("HEIF")
    if brands[0] == b"crx ":
        return "a camera raw file (CR3)"
    if brands[0] in (b"M4A ", b"M4B "):
        return "sound (M4A)"
    return _make_video("mov")


def _is_targa(head: bytes) -> bool:
    """Return whether a file has a consistent Targa header; the format has no magic number."""
    if len(head) < _TARGA_HEADER:
        return False
    colours, kind, depth, flags = head[1], head[2], head[16], head[17]
    entries, entry_bits = int.from_bytes(head[5:7], "little"), head[7]
    mapped = kind in (1, 9)
    map_fits = (entries > 0 and entry_bits in (15, 16, 24, 32)) if mapped else not any(head[3:8])
    depths = (8,) if mapped else (8, 16) if kind in (3, 11) else (15, 16, 24, 32)
    sizes = int.from_bytes(head[12:14], "little") and int.from_bytes(head[14:16], "little")
    known = kind in (1, 2, 3, 9, 10, 11) and colours == int(mapped) and depth in depths
    return bool(known and map_fits and sizes) and flags & 0xC0 == 0 and flags & 0x0F <= 8
