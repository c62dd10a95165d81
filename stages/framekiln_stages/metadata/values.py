"""Values of tags: times with their zone or none, places, and numbers within their limits.

Sources: CIPA DC-008 (EXIF 2.32), XMP part 2, Apple's QuickTime metadata keys, ISO 6709 annex H.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

Tags = Mapping[str, str]

_TIME = re.compile(r"(\d{4})[-:/](\d\d)[-:/](\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?\s*(Z|[+-]\d\d:?\d\d)?")
# XMP leaves out what a person does not know, EXIF has blanks there, IPTC zeros, as many programs have.
_DATE = re.compile(r"(\d{4})(?:[-:/](\d\d)(?:[-:/](\d\d))?)?(?![-:/T]?\d)[T :]*$")
_ZONE = re.compile(r"([+-])(\d\d):?(\d\d)")
# In degrees. With more digits before the point, ISO 6709 includes minutes: +0012.5 is 12.5 minutes.
_ISO_PLACE = re.compile(r"([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)([+-]\d+(?:\.\d+)?)?(?![\d.])")
_XMP_PLACE = re.compile(r"(\d+),(\d+(?:\.\d+)?)(?:,(\d+(?:\.\d+)?))?([NSEW])")
_EXIF_TIMES = {
    "exif:DateTimeOriginal": ("exif:OffsetTimeOriginal", "exif:SubsecTimeOriginal"),
    "exif:DateTimeDigitized": ("exif:OffsetTimeDigitized", "exif:SubsecTimeDigitized"),
}
# Times of taking stand before times of a file, which for a scan are those of scanning (Metadata Working Group 2.0).
# A video's `creation_time` is UTC by ISO/IEC 14496-12, though some cameras write their local time there.
_TIME_NAMES = (
    "exif:DateTimeOriginal",
    "film:com.apple.quicktime.creationdate",
    "xmp:exif:DateTimeOriginal",
    "xmp:photoshop:DateCreated",
    "iptc:DateCreated",
    "exif:DateTimeDigitized",
    "xmp:CreateDate",
    "text:Creation Time",
    "film:creation_time",
)
_FIRST = datetime(1826, 1, 1)  # the year of the first photo
WRITTEN_WITHIN = timedelta(minutes=1)  # time after the exposure: a camera may write the time at its end
_UNSET = (datetime(1904, 1, 1), datetime(1970, 1, 1), datetime(1980, 1, 1))  # times of clocks that were never set


def read_number(tags: Tags, names: Sequence[str], least: float, most: float) -> float | None:
    """Return the first of some tags that is a number within limits; `1/60` is one, and of several the first counts."""
    for name in names:
        first, _, second = tags.get(name, "").partition(" ")[0].partition("/")
        try:
            value = float(first) / float(second or 1)
        except (ValueError, ZeroDivisionError):
            continue
        if least <= value <= most:
            return value
    return None


@dataclass(frozen=True, kw_only=True)
class Time:
    """A local time, with its zone if that is known."""

    at: datetime
    zone: str | None = None  # such as +02:00
    precision: str | None = None  # year, month or day if that is all that is known; `at` is its beginning

    def is_finer(self, other: "Time") -> bool:
        """Return whether this is a time on the day that the other one names."""
        return other.precision == "day" and self.precision is None and self.at.date() == other.at.date()

    def is_more_of(self, other: "Time") -> bool:
        """Return whether another time without a zone repeats this one, or its day."""
        is_same = self.precision == other.precision and _cut(self.at) == _cut(other.at)
        return (is_same and other.zone is None) or self.is_finer(other)


def read_time(tags: Tags) -> Time | None:
    """Return when a file was taken; a known day is completed by another tag's time on it."""
    found = [time for name in _TIME_NAMES if (time := _read_one(tags, name))]
    return next((time for time in found if time.is_finer(found[0])), found[0]) if found else None


def _read_one(tags: Tags, name: str) -> Time | None:
    zone, part = _EXIF_TIMES.get(name, ("", ""))
    digits = re.match(r"\d*", tags.get(part, ""))
    time = _parse(tags.get(name, ""), digits[0] if digits else "")
    own = _read_zone(tags.get(zone, ""))
    return replace(time, zone=own) if time and own else time


def read_edit_time(tags: Tags, taken_at: datetime | None) -> datetime | None:
    """Return when a program last changed a photo; None if that equals the time taken, or either is unknown.

    EXIF 2.32: a camera writes the same time to both tags, a program changes only DateTime.
    """
    times = (_parse(tags.get(name, "")) for name in ("exif:DateTime", "xmp:ModifyDate"))
    changed = next((time.at for time in times if time), None)
    if changed is None or taken_at is None or "exif:DateTimeOriginal" not in tags:
        return None
    return None if abs(changed - taken_at) < WRITTEN_WITHIN else changed


def _parse(text: str, digits: str = "") -> Time | None:
    """Return a time; None for an impossible one. `digits`: fraction of the second from another tag."""
    if date := _DATE.match(text.strip()):
        return _parse_date([int(part) for part in date.groups(default="0")])
    if not (match := _TIME.match(text)):
        return None
    *parts, fraction, zone = match.groups(default="")
    if "00" in parts[1:3]:
        return _parse_date([int(part) for part in parts[:3]])
    try:
        time = datetime(*(int(part or 0) for part in parts))  # type: ignore[arg-type]
        time += timedelta(seconds=float(f"0.{digits or fraction or 0}"))
    except (ValueError, OverflowError):
        return None
    return None if time < _FIRST or time in _UNSET else Time(at=time, zone=_read_zone(zone))


def _parse_date(parts: list[int]) -> Time | None:
    """Return the beginning of a year, month or day; parts are 0 from the first unknown one on."""
    known = next((at for at, part in enumerate(parts) if not part), len(parts))
    try:
        time = datetime(*(parts[:known] + [1, 1, 1][known:]))  # type: ignore[arg-type]
    except ValueError:
        return None
    return None if time < _FIRST else Time(at=time, precision=("year", "month", "day")[known - 1])


def _cut(time: datetime) -> datetime:
    return time.replace(microsecond=0)


def _read_zone(text: str) -> str | None:
    if text == "Z":
        return "+00:00"
    match = _ZONE.match(text)
    return f"{match[1]}{match[2]}:{match[3]}" if match and int(match[2]) <= 14 and int(match[3]) < 60 else None


def read_place(tags: Tags) -> tuple[float | None, float | None, float | None]:
    """Return latitude, longitude and altitude; all None if one of the first two is missing or impossible."""
    latitude = _read_angle(tags, "Latitude", "S")
    longitude = _read_angle(tags, "Longitude", "W")
    altitude = read_number(tags, ("gps:GPSAltitude", "xmp:exif:GPSAltitude"), 0, 1e5)
    reference = tags.get("gps:GPSAltitudeRef") or tags.get("xmp:exif:GPSAltitudeRef", "0")
    if altitude is not None and reference.strip() == "1":
        altitude = -altitude
    for name in ("film:com.apple.quicktime.location.ISO6709", "film:location", "film:location-eng"):
        if latitude is None and (match := _ISO_PLACE.match(tags.get(name, ""))):
            latitude, longitude = float(match[1]), float(match[2])
            altitude = float(match[3]) if match[3] else None
    if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
        return None, None, None
    return (None, None, None) if latitude == longitude == 0 else (latitude, longitude, altitude)


def _read_angle(tags: Tags, axis: str, negative: str) -> float | None:
    """Return an angle from EXIF (degrees, minutes and seconds with a reference) or from XMP (48,12.5N)."""
    if match := _XMP_PLACE.fullmatch(tags.get(f"xmp:exif:GPS{axis}", "")):
        value = float(match[1]) + float(match[2]) / 60 + float(match[3] or 0) / 3600
        return -value if match[4] == negative else value
    try:
        parts = [float(text) for text in tags.get(f"gps:GPS{axis}", "").split()]
    except ValueError:
        return None
    reference = tags.get(f"gps:GPS{axis}Ref", "").strip().upper()[:1]
    if len(parts) != 3 or not reference or min(parts) < 0:
        return None
    value = parts[0] + parts[1] / 60 + parts[2] / 3600
    return -value if reference == negative else value
