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


def test_unknown_profiles_and_files():
    with pytest.raises(ConfigError, match="no profile 'cpu-olny'. Did you mean 'cpu-only'"):
        read_profile("cpu-olny")
    with pytest.raises(ConfigError, match="no profile at 'nowhere.yaml'"):
        read_profile("nowhere.yaml")
    with pytest.raises(ConfigError, match="no pipeline file at"):
        read_pipeline("nowhere.yaml")
