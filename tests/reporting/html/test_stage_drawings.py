"""Drawings of second-pass stages on a frame, from the rows of their tables about it."""

from __future__ import annotations

import numpy as np
import pytest

from framekiln_stages.identities.stage import Identities
from framekiln_stages.lighting.stage import Steadiness
from framekiln_stages.objects.stage import Objects
from framekiln_stages.shared.masks import encode
from framekiln_stages.shared.skeleton import BONES, LANDMARKS
from framekiln_stages.shots.stage import Shots
from framekiln_stages.sync.stage import Sync
from framekiln_stages.tracks.stage import Tracks

BOX = {"x0": 0.25, "y0": 0.5, "x1": 0.5, "y1": 0.75}


def test_faces_carry_the_number_of_their_identity():
    faces = [{"box": BOX}, {"box": {**BOX, "x0": 0.0}}]
    people = {0: (7, None), 1: (None, None), 2: (1, None)}
    rows = [{"face_index": at, "identity": number, "name": name} for at, (number, name) in people.items()]
    drawing = Identities().draw({"faces": faces, "identities": rows, "identity_summary": []})
    assert [(label.x, label.y, label.text) for label in drawing.labels] == [
        (0.25, 0.5, "person 7"),
        (0.0, 0.5, "no identity"),
    ]
    assert (0.25, 0.5, 0.5, 0.5) in drawing.lines and len(drawing.lines) == 8
    assert drawing.caption == "person 7, no identity"
    assert Identities().draw({"faces": None, "identities": []}) is None


def test_tracks_are_skeletons_with_their_number():
    marks = [{"x": i / 100, "y": 0.5} for i in range(LANDMARKS)]
    drawing = Tracks().draw({"tracks": [{"track": 3, "landmarks": marks}], "track_summary": []})
    assert len(drawing.lines) == len(BONES) and drawing.caption == "track 3"
    a, b = BONES[0]
    assert drawing.lines[0] == (a / 100, 0.5, b / 100, 0.5) and drawing.labels[0].text == "track 3"
    assert Tracks().draw({"tracks": []}) is None


def test_objects_keep_their_colour_and_hidden_ones_are_not_drawn():
    mask = np.zeros((40, 80), bool)
    mask[10:20, 20:40] = True
    (code,) = encode([mask])
    seen, hidden = {"object": 2, "segmentation": code, "box": BOX}, {"object": 1, "segmentation": code, "box": None}
    drawing = Objects().draw({"objects": [seen, hidden]})
    (area,) = drawing.areas
    assert (area.colour, drawing.caption, drawing.labels[0].text) == (2, "object 2", "object 2")
    assert {(round(x * 80 - 0.5), round(y * 40 - 0.5)) for x, y in area.rings[0]} == {
        (20, 10),
        (39, 10),
        (39, 19),
        (20, 19),
    }
    assert Objects().draw({"objects": [hidden]}) is None


def test_captions_of_shots_and_lighting():
    shot = {"shot": 1, "first_frame": 10, "last_frame": 20}
    fade = {"kind": "fade_out", "first_frame": 18, "last_frame": 20}
    assert Shots().draw({"shots": [shot], "transitions": [fade]}).caption == "shot 1, frames 10 to 20, in a fade out"
    assert Shots().draw({"shots": [], "transitions": []}) is None
    light = {"lighting_steadiness": [{"consistency": 0.5, "jumps": 2}], "lighting_jumps": []}
    assert Steadiness().draw(light).caption == "consistency 0.50, jumps: 2"
    jump = {"quantity": "exposure", "size": -1.25, "unit": "stop"}
    assert Steadiness().draw(light | {"lighting_jumps": [jump]}).caption.endswith("; exposure jumps by -1.2 stop")
    assert Steadiness().draw({"lighting_steadiness": [], "lighting_jumps": []}) is None


@pytest.mark.parametrize(
    ("row", "caption"),
    [
        ({"offset_ms": 80.0, "confidence": 0.914, "reason": None}, "sound 80 ms late, confidence 0.91"),
        ({"offset_ms": -40.0, "confidence": 0.6, "reason": None}, "sound 40 ms early, confidence 0.60"),
        ({"offset_ms": None, "confidence": None, "reason": "no face"}, "no face"),
    ],
)
def test_captions_of_sync(row, caption):
    assert Sync().draw({"sync": [row], "sync_shots": []}).caption == caption
    assert Sync().draw({"sync": []}) is None
