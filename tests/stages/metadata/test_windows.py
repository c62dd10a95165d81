"""Windows' own tags, and sensitivities above what their tag holds, are read right from files made with known ones."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.stages.metadata.test_metadata import EXIF, NULL, columns, picture, read


def test_windows_own_tags_are_read_after_the_others(tmp_path):
    tags = Image.Exif()
    said = {0x9C9B: "Häfen", 0x9C9C: "Boats", 0x9C9D: "Ada Moss;B", 0x9C9E: "boat; Zürich"}
    for number, text in said.items():
        tags[number] = text.encode("utf-16-le") + b"\0\0"
    expected = {"title": "Häfen", "description": "Boats", "creator": "Ada Moss", "keywords": ["boat", "Zürich"]}
    assert read(tmp_path, picture(exif=tags.tobytes())) == NULL | expected
    xmp = b"""<rdf:RDF><dc:title><rdf:Alt><rdf:li>Harbour</rdf:li></rdf:Alt></dc:title>
      <dc:subject><rdf:Bag><rdf:li>sea</rdf:li></rdf:Bag></dc:subject></rdf:RDF>"""
    row = read(tmp_path, picture(exif=tags.tobytes(), xmp=xmp))
    assert row == NULL | expected | {"title": "Harbour", "keywords": ["sea"]}


@pytest.mark.parametrize(("percent", "stars"), [(0, 0), (1, 1), (25, 2), (50, 3), (75, 4), (99, 5), (87, 4)])
def test_windows_percent_are_stars(percent, stars, tmp_path):
    xmp = f"<rdf:RDF><MicrosoftPhoto:Rating>{percent}</MicrosoftPhoto:Rating></rdf:RDF>".encode()
    assert read(tmp_path, picture(xmp=xmp))["rating"] == stars
    assert columns(**{"xmp__MicrosoftPhoto:Rating": str(percent), "xmp__Rating": "2"})["rating"] == 2
    tags = Image.Exif()
    tags[0x4746] = 3
    assert read(tmp_path, picture(exif=tags.tobytes()))["rating"] == 3


def test_a_sensitivity_above_what_its_tag_holds(tmp_path):
    tags = Image.Exif()
    own = tags.get_ifd(EXIF)
    own[0x8827], own[0x8830], own[0x8832] = 65535, 2, 102400
    assert read(tmp_path, picture(exif=tags.tobytes()))["iso"] == 102400
    own[0x8833] = 204800
    assert read(tmp_path, picture(exif=tags.tobytes()))["iso"] == 204800
    own[0x8827] = 400
    assert read(tmp_path, picture(exif=tags.tobytes()))["iso"] == 400
    assert columns(exif__ISOSpeedRatings="65535")["iso"] == 65535
