"""A misspelt key costs a night on borrowed machines when it is ignored in silence."""

from __future__ import annotations

import pytest

from pipeline.errors import ConfigError
from pipeline.manifest import read_pipeline, read_profile

MISTAKES = {
    "steps: {a: {usee: x:Y}}": "unknown key 'usee' in steps.a. Did you mean 'use'",
    "step: {}": "unknown key 'step'. Did you mean 'steps'",
    "steps: {a: {use: nonsense}}": "steps.a.use",
    "decode: {every_nht: 2}\nsteps: {}": "unknown key 'every_nht' in decode. Did you mean 'every_nth'",
    "decode: {every_nth: zero}\nsteps: {}": "decode.every_nth: input should be a valid integer",
    "max_errors: twenty\nsteps: {}": "p.yaml: max_errors: must be a number of rows, as 100, or a share",
    "steps: {a: {use: 'x:Y', max_errors: 1.5}}": "p.yaml: steps.a.max_errors: must be a number of rows",
    "decode: {max_errors: 200%}\nsteps: {}": "p.yaml: decode.max_errors: must be a number of rows, as 100, or a share",
    "- a list": "must be a YAML mapping",
    "a: [": "not valid YAML",
    "steps: {a: !!python/object/apply:os.system ['true']}": "not valid YAML",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_a_pipeline_file(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigError, match=MISTAKES[text]) as caught:
        read_pipeline(str(tmp_path / "p.yaml"))
    assert "\n" not in str(caught.value)


def test_mistakes_in_a_profile(tmp_path):
    (tmp_path / "p.yaml").write_text("steps: {pose: {wokers: 2}}")
    with pytest.raises(ConfigError, match="unknown key 'wokers' in steps.pose. Did you mean 'workers'"):
        read_profile(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize("number", ["0", "-1", "true", "many", "1.5"])
@pytest.mark.parametrize("place", ["decode", "defaults", "steps: {pose"])
def test_no_workers_are_refused(tmp_path, place, number):
    (tmp_path / "p.yaml").write_text(f"{place}: {{workers: {number}}}{'}' if '{' in place else ''}")
    with pytest.raises(ConfigError, match=r"p.yaml: \w+(.pose)?.workers: must be a number from 1, or auto \(got"):
        read_profile(str(tmp_path / "p.yaml"))


def test_unknown_profiles_and_files():
    with pytest.raises(ConfigError, match="no profile 'cpu-olny'. Did you mean 'cpu-only'"):
        read_profile("cpu-olny")
    with pytest.raises(ConfigError, match="no profile at 'nowhere.yaml'"):
        read_profile("nowhere.yaml")
    with pytest.raises(ConfigError, match="no pipeline file at"):
        read_pipeline("nowhere.yaml")
