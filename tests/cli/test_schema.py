"""JSON schemas of the files that users write: shipped files are valid, mistakes are not."""

from __future__ import annotations

import functools
import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from framekiln.cli.commands.steps import file_schema
from framekiln.contract.shipped_files import shipped
from framekiln.planning.manifest import profile_names
from tests.support.machine.command_line import command


@functools.cache
def validator(kind: str) -> Draft202012Validator:
    """Build the validator of a kind of file, which takes seconds."""
    schema = file_schema(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(kind: str, data: object) -> list[str]:
    """List the JSON paths at which data does not match the schema of a kind of file."""
    return [error.json_path for error in validator(kind).iter_errors(data)]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("pipeline", "pipeline.yaml"),
        ("models", "models.yaml"),
        *(("profile", f"profiles/{n}.yaml") for n in profile_names()),
    ],
)
def test_shipped_files_are_valid(kind, file):
    assert problems(kind, yaml.safe_load(shipped(*file.split("/")).read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("kind", "text", "where"),
    [
        (
            "pipeline",
            "steps: {faces: {use: 'framekiln_stages.faces:Faces', with: {max_facess: 3}}}",
            "$.steps.faces.with",
        ),
        (
            "pipeline",
            "steps: {faces: {use: 'framekiln_stages.faces:Faces', with: {max_faces: many}}}",
            "$.steps.faces.with.max_faces",
        ),
        ("pipeline", "steps: {faces: {uses: 'framekiln_stages.faces:Faces'}}", "$.steps.faces"),
        ("profile", "steps: {faces: {batch: 0}}", "$.steps.faces.batch"),
        ("profile", "steps: {faces: {with: {max_facess: 3}}}", "$.steps.faces.with"),
        ("profile", "decode: {workers: 0}", "$.decode.workers"),
        ("models", "net: {file: net.onnx, bytes: 3}", "$.net"),
        ("pipeline", "steps: {faces: {use: faces, with: {max_faces: 0}}}", "$.steps.faces.with.max_faces"),
        ("pipeline", "steps: {faces: {use: faces, with: {min_score: 1.5}}}", "$.steps.faces.with.min_score"),
    ],
)
def test_mistakes_are_found_where_they_are(kind, text, where):
    assert set(problems(kind, yaml.safe_load(text))) == {where}


def test_a_stage_of_ones_own_is_checked_by_run_and_not_by_the_shipped_schema():
    text = "steps: {mine: {use: 'mystages.colorfulness:Colorfulness', with: {anything: 1}}}"
    assert problems("pipeline", yaml.safe_load(text)) == []


def test_the_command_prints_meanings_from_the_source():
    found = json.loads(command("schema", "profile").stdout)
    faces = found["properties"]["steps"]["properties"]["faces"]["properties"]["with"]["anyOf"][0]["properties"]
    assert faces["keep_crops"]["description"] == "write the aligned face as a JPEG, for contact sheets"
    assert any("too_large" in one.get("properties", {}) for one in found["$defs"].values())
    assert command("schema", "targets").returncode == 2
