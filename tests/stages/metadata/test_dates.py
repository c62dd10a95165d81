"""A picture has the date that a person or a camera gave it, as exactly as that, and not the time of its scan."""

from __future__ import annotations

from datetime import datetime

import pytest

from framekiln_stages.metadata.stage import Metadata
from tests.stages.metadata.test_metadata import NULL, columns

SCANNED = {"exif__DateTimeDigitized": "2015:06:01 10:00:00", "xmp__CreateDate": "2015-06-01T10:00:00+02:00"}


@pytest.mark.parametrize(
    ("tag", "text", "time", "precision"),
    [
        ("xmp__photoshop__DateCreated", "1943-05-12T07:30:00", datetime(1943, 5, 12, 7, 30), None),
        ("xmp__photoshop__DateCreated", "1943-05-12", datetime(1943, 5, 12), "day"),
        ("xmp__photoshop__DateCreated", "1943-05", datetime(1943, 5, 1), "month"),
        ("xmp__exif__DateTimeOriginal", "1970", datetime(1970, 1, 1), "year"),
        ("exif__DateTimeOriginal", "1943:05:12   :  :  ", datetime(1943, 5, 12), "day"),
        ("exif__DateTimeOriginal", "1943:  :     :  :  ", datetime(1943, 1, 1), "year"),
        ("exif__DateTimeOriginal", "1943:05:00 00:00:00", datetime(1943, 5, 1), "month"),
        ("iptc__DateCreated", "1943-00-00", datetime(1943, 1, 1), "year"),
        ("iptc__DateCreated", "2015-06-01", datetime(2015, 6, 1, 10), None),  # the scan's time lies on that day
        ("iptc__DateCreated", "2015-06-00", datetime(2015, 6, 1), "month"),
        ("iptc__DateCreated", "0000-00-00", datetime(2015, 6, 1, 10), None),
    ],
)
def test_the_date_of_a_picture_wins_over_the_time_of_its_scan(tag, text, time, precision):
    assert columns(**SCANNED, **{tag: text}) == NULL | {"taken_at": time, "taken_precision": precision}


@pytest.mark.parametrize(("precision", "shown"), [("year", "1943"), ("month", "1943-05"), ("day", "1943-05-12")])
def test_the_report_shows_no_time_that_nobody_said(precision, shown):
    drawing = Metadata().draw({"taken_at": datetime(1943, 5, 12), "taken_precision": precision})
    assert drawing and drawing.caption == shown
