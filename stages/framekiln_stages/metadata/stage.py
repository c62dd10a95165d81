"""Metadata that cameras and editors wrote into a file: time, place, equipment and exposure.

Photos state it in EXIF and XMP, videos in their container's tags (QuickTime's keys, and those of MP4 and Matroska). An
XMP sidecar wins over the file itself: editors write a person's changes there, and leave the file as the camera wrote
it. ExifTool, too, overwrites a file's tags by a sidecar's when told to join them. Nothing is guessed: a time without a
zone has none, and a damaged or impossible value is null.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract import Drawing, Stage, field
from framekiln_stages.metadata import values
from framekiln_stages.metadata.values import Tags

OUTPUTS = pa.schema(
    [
        field(
            "taken_at", pa.timestamp("us"), "time when it was taken, by the local clock; for videos without a zone UTC"
        ),
        field(
            "taken_precision",
            pa.string(),
            "year, month or day where the file names no more; `taken_at` is its beginning then; else null",
        ),
        field("utc_offset", pa.string(), "zone of `taken_at` such as +02:00; null where the file names none"),
        field("latitude", pa.float64(), "north is positive, -90 to 90", "degree"),
        field("longitude", pa.float64(), "east is positive, -180 to 180", "degree"),
        field("altitude", pa.float32(), "above sea level", "m"),
        field("camera_make", pa.string(), "maker of the camera or phone"),
        field("camera_model", pa.string(), "its model"),
        field("lens", pa.string(), "model of the lens"),
        field("exposure_s", pa.float64(), "exposure time", "s"),
        field("f_number", pa.float32(), "aperture: focal length over its diameter"),
        field("iso", pa.int32(), "sensitivity by ISO 12232"),
        field("focal_length", pa.float32(), "focal length of the lens", "mm"),
        field("focal_length_35mm", pa.float32(), "focal length with the same view on 35 mm film", "mm"),
        field("flash", pa.bool_(), "whether the flash fired"),
        field("rating", pa.int32(), "stars given by a person, -1 (rejected) to 5; a sidecar's win"),
        field("label", pa.string(), "colour or word given in an editor, in its language, such as Red"),
        field("keywords", pa.list_(pa.string()), "words given by a person; a sidecar's replace the file's"),
        field("title", pa.string(), "title of a film or photo"),
        field("description", pa.string(), "caption or comment; some cameras write their own name"),
        field("creator", pa.string(), "photographer or author; the first of several"),
        field("software", pa.string(), "program or firmware that wrote the file"),
        field("edited_at", pa.timestamp("us"), "when a program last changed the photo, by its EXIF; null if none did"),
        field("content_credentials", pa.bool_(), "whether the file holds a C2PA manifest, which is not verified"),
    ]
)
_NUMBERS: Mapping[str, tuple[tuple[str, ...], float, float]] = {
    "exposure_s": (("exif:ExposureTime", "xmp:exif:ExposureTime"), 1e-7, 1e6),
    "f_number": (("exif:FNumber", "xmp:exif:FNumber"), 0.1, 1000),
    "iso": (
        (
            *("exif:ISOSpeedRatings", "exif:PhotographicSensitivity", "exif:ISOSpeed"),
            *("xmp:exifEX:PhotographicSensitivity", "xmp:exif:ISOSpeedRatings"),
        ),
        1,
        1e8,
    ),
    "focal_length": (("exif:FocalLength", "xmp:exif:FocalLength"), 0.1, 1e5),
    "focal_length_35mm": (("exif:FocalLengthIn35mmFilm", "xmp:exif:FocalLengthIn35mmFilm"), 0.1, 1e5),
    "rating": (("xmp:Rating", "exif:Rating", "xmp:xmp:Rating"), -1, 5),
}
"""Names of a number, most trusted first, with its least and greatest value."""
_FULL = 0xFFFF  # EXIF 2.3: a greater sensitivity than the tag holds, which other tags have
_LARGE_ISO = (
    *("exif:RecommendedExposureIndex", "exif:ISOSpeed", "exif:StandardOutputSensitivity"),
    *("xmp:exifEX:RecommendedExposureIndex", "xmp:exifEX:ISOSpeed"),
)
_PERCENT = ("xmp:MicrosoftPhoto:Rating",)
# Matroska's names are in capitals, except for `title`.
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "camera_make": (
        "exif:Make",
        "xmp:tiff:Make",
        "film:com.apple.quicktime.make",
        "film:make",
        "film:com.android.manufacturer",
    ),
    "camera_model": (
        "exif:Model",
        "xmp:tiff:Model",
        "film:com.apple.quicktime.model",
        "film:model",
        "film:com.android.model",
    ),
    "lens": ("exif:LensModel", "xmp:exifEX:LensModel", "xmp:aux:Lens", "track:com.apple.quicktime.camera.lens_model"),
    "label": ("xmp:Label",),
    "title": (
        *("xmp:dc:title", "iptc:ObjectName", "film:com.apple.quicktime.title", "film:title", "text:Title"),
        "exif:XPTitle",
    ),
    "description": (
        "xmp:dc:description",
        "iptc:Caption",
        "exif:ImageDescription",
        "film:com.apple.quicktime.description",
        "film:description",
        "film:DESCRIPTION",
        "film:comment",
        "film:COMMENT",
        "text:Description",
        "exif:XPComment",
    ),
    "creator": (
        "xmp:dc:creator",
        "iptc:By-line",
        "exif:Artist",
        "film:com.apple.quicktime.author",
        "film:artist",
        "film:ARTIST",
        "text:Author",
        "exif:XPAuthor",
    ),
    "software": (
        "exif:Software",
        "xmp:CreatorTool",
        "text:Software",
        "film:com.apple.quicktime.software",
        "film:firmware",
        "film:encoder",
    ),
}


# By the Metadata Working Group (2.0) XMP wins over IPTC, unless a program changed only the latter, and EXIF over both.
# Here EXIF is last: cameras write their own name there.
_IN_IPTC = {
    "xmp:dc:title": "iptc:ObjectName",
    "xmp:dc:description": "iptc:Caption",
    "xmp:dc:creator": "iptc:By-line",
    "xmp:dc:subject": "iptc:Keywords",
}
_SIDECAR = "sidecar:"
_SHOWN = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d"}
_TOGETHER = (("taken_at", "taken_precision", "utc_offset"), ("latitude", "longitude", "altitude"))
_SAID_TOGETHER = (*_TOGETHER, *((name,) for name in (*_NUMBERS, *_TEXTS, "keywords")))
"""Columns that a sidecar replaces, grouped by meaning."""


class Metadata(Stage):
    """Time, place, camera, exposure, rating and software of each file, from its tags."""

    version = 9  # 9: times of taking before those of scanning, dates without a time; 8: Windows' own tags
    thread_safe = True
    inputs = ("tags",)
    outputs = OUTPUTS

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Read the tags of each row; rows of one file share them."""
        known: dict[Any, dict[str, Any]] = {}
        rows = []
        with self.phase("infer"):
            for pairs in batch["tags"].to_pylist():
                key = tuple(pairs or ())
                if key not in known:
                    known[key] = describe(dict(key))
                rows.append(known[key])
        return pa.Table.from_pylist(rows, schema=OUTPUTS)

    def summarize(self, rows: pa.Table, scale: float) -> list[str]:
        """Return the range of time of the frames."""
        times = rows["taken_at"].drop_null()
        if not len(times):
            return ["no file says when it was taken"]
        first, last = (f"{value.day} {value:%B %Y}" for value in pc.min_max(times).as_py().values())
        unknown = round(scale * rows["taken_at"].null_count)
        without = f" ({unknown:,} frames do not say)" if unknown else ""
        return [f"taken {f'on {first}' if first == last else f'from {first} to {last}'}{without}"]

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        zone = f" {row['utc_offset']}" if row.get("utc_offset") else ""
        shown = _SHOWN.get(row.get("taken_precision") or "", f"%Y-%m-%d %H:%M{zone}")
        facts = [f"{row['taken_at']:{shown}}"] if row.get("taken_at") else []
        facts += [row["camera_model"]] if row.get("camera_model") else []
        return Drawing(caption=", ".join(facts)) if facts else None


def describe(tags: Tags) -> dict[str, Any]:
    """Return the columns of one file, completed by its sidecar."""
    found = _describe(tags)
    said = {name.removeprefix(_SIDECAR): text for name, text in tags.items() if name.startswith(_SIDECAR)}
    own = values.read_time(tags)
    if own:
        said.pop("xmp:CreateDate", None)  # for a scan it is the date of scanning
    later, time = _describe(said), values.read_time(said)
    if own and time and own.is_more_of(time):
        later["taken_at"] = None  # Lightroom repeats the time without its zone
    for first, *others in _SAID_TOGETHER:
        if later[first] is not None:
            found |= {name: later[name] for name in (first, *others)}
    return found


def _read_numbers(tags: Tags) -> dict[str, float | None]:
    numbers = {name: values.read_number(tags, *rule) for name, rule in _NUMBERS.items()}
    if numbers["iso"] == _FULL:
        numbers["iso"] = max(values.read_number(tags, (name,), _FULL, 1e8) or _FULL for name in _LARGE_ISO)
    if numbers["rating"] is None and (percent := values.read_number(tags, _PERCENT, 0, 100)) is not None:
        numbers["rating"] = (percent + 12) // 25 + 1 if percent else 0  # Windows: 1, 25, 50, 75, 99 for 1 to 5 stars
    return numbers


def _describe(tags: Tags) -> dict[str, Any]:
    if "iptc:IsNewer" in tags:
        older = {xmp for xmp, iptc in _IN_IPTC.items() if tags.get(iptc)}
        tags = {name: text for name, text in tags.items() if name not in older}
    time = values.read_time(tags)
    latitude, longitude, altitude = values.read_place(tags)
    numbers = _read_numbers(tags)
    whole: Callable[[float | None], int | None] = lambda value: None if value is None else round(value)  # noqa: E731
    fired = values.read_number(tags, ("exif:Flash",), 0, 0xFFFF)
    keywords = tags.get("xmp:dc:subject") or tags.get("iptc:Keywords") or tags.get("exif:XPKeywords", "")
    return {
        **numbers,
        **{name: next((tags[key] for key in keys if tags.get(key)), None) for name, keys in _TEXTS.items()},
        "iso": whole(numbers["iso"]),
        "rating": whole(numbers["rating"]),
        "keywords": [word for word in map(str.strip, keywords.split(";")) if word] or None,
        "taken_at": time and time.at,
        "taken_precision": time and time.precision,
        "utc_offset": time and time.zone,
        "latitude": latitude,
        "longitude": longitude,
        "altitude": altitude,
        "edited_at": values.read_edit_time(tags, time.at if time else None),
        "flash": None if fired is None else bool(int(fired) & 1),  # EXIF 2.32, table 8: bit 0
        "content_credentials": "c2pa" in tags,
    }
