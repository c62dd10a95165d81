"""`framekiln steps` and `framekiln columns` describe the shipped pipeline."""

from __future__ import annotations

import json
import re

from framekiln.cli.commands.steps import setting_meanings
from framekiln.planning.manifest import read_pipeline
from framekiln_stages.faces import Faces
from tests.support.machine.command_line import command


def test_steps_and_settings_as_json():
    steps = json.loads(command("steps", "--json").stdout)
    assert set(steps) == set(read_pipeline(None).steps)
    settings = steps["faces"]["settings"]
    assert settings["detect_side"]["default"] is None and settings["detect_side"]["value"] == 1280
    assert settings["max_faces"]["value"] == 500 and "most faces of one image" in settings["max_faces"]["meaning"]
    assert all(step["description"] for step in steps.values())


def test_one_step_as_a_table_and_an_unknown_one():
    done = command("steps", "flow")
    assert done.returncode == 0 and "preset" in done.stdout and "max_faces" not in done.stdout
    refused = command("steps", "flwo")
    assert refused.returncode == 2 and "[FK-UNKNOWN-STEP]" in refused.stderr and "'flow'" in refused.stderr


def test_columns_as_json():
    tables = json.loads(command("columns", "--json").stdout)
    names = [column["name"] for column in tables["frames"]]
    assert {"media_id", "frame_index", "faces", "masks"} <= set(names) and "identities" in tables
    assert {"name", "type", "unit", "description"} <= set(tables["frames"][0])


def test_the_overview_of_columns_names_each_one_in_few_lines():
    shown = command("columns", COLUMNS="80").stdout
    words = set(re.split(r"[\s,:]+", shown))
    tables = json.loads(command("columns", "--json").stdout)
    assert {column["name"] for table in tables.values() for column in table} <= words
    assert {f"{table}/" for table in tables} <= words
    lines = shown.splitlines()
    assert len(lines) < 70 and max(map(len, lines)) <= 80


def test_details_of_columns_are_of_a_step_or_a_table_or_a_column_or_of_all():
    flow = command("columns", "flow", COLUMNS="80").stdout
    assert "motion_mean  float, px\n      mean length of the flow" in flow and "exposure" not in flow
    tables = json.loads(command("columns", "shots", "--json").stdout)
    assert set(tables) == {"shots", "transitions"}, "both tables of the step"
    tables = json.loads(command("columns", "transitions", "--json").stdout)
    assert set(tables) == {"transitions"}
    names = [column["name"] for column in json.loads(command("columns", "decode", "--json").stdout)["frames"]]
    assert names[:4] == ["media_id", "uri", "path", "frame_index"] and "exposure" not in names
    every = command("columns", "--all", COLUMNS="80").stdout
    assert flow.partition("\n")[2] in every and "jitter_smoothed  float, size" in every
    assert all(line == line.rstrip() and len(line) <= 80 for line in every.splitlines())
    tables = json.loads(command("columns", "frames/sharpness", "--json").stdout)
    assert [(name, one["name"], one["step"]) for name, (one,) in tables.items()] == [("frames", "sharpness", "quality")]
    refused = command("columns", "flwo")
    assert refused.returncode == 2 and "[FK-UNKNOWN-STEP]" in refused.stderr and "'flow'" in refused.stderr


def test_meanings_are_the_comments_of_the_source():
    meanings = setting_meanings(Faces.Config)
    assert meanings["keep_crops"] == "write the aligned face as a JPEG, for contact sheets"
    assert meanings["size"].startswith("Short side of the pixels that faces are cut from")


def test_types_of_settings_are_written_as_in_code():
    settings = json.loads(command("steps", "faces", "--json").stdout)["faces"]["settings"]
    types = {name: setting["type"] for name, setting in settings.items()}
    assert types["size"] == "int" and types["model"].startswith("Literal['mobilefacenet', ")
