"""The pipeline file and the profile are parsed strictly."""

from __future__ import annotations

import re

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.planning.manifest import ProfileFile, profile_names, read_pipeline, read_profile
from tests.support.errors import fails

MISTAKES = {
    "steps: {a: {usee: x:Y}}": ("FK-UNKNOWN-KEY", "'usee' in steps.a. Did you mean 'use'"),
    "step: {}": ("FK-UNKNOWN-KEY", "'step'. Did you mean 'steps'"),
    "steps: {a: {use: nonsense}}": ("FK-INVALID-VALUE", "steps.a.use: "),
    "decode: {every_nht: 2}\nsteps: {}": ("FK-UNKNOWN-KEY", "'every_nht' in decode. Did you mean 'every_nth'"),
    "decode: {every_nth: zero}\nsteps: {}": ("FK-INVALID-VALUE", "decode.every_nth: "),
    "max_errors: twenty\nsteps: {}": ("FK-INVALID-VALUE", "p.yaml: max_errors: "),
    "steps: {a: {use: 'x:Y', max_errors: 1.5}}": ("FK-INVALID-VALUE", "p.yaml: steps.a.max_errors: "),
    "decode: {max_errors: 200%}\nsteps: {}": ("FK-INVALID-VALUE", "p.yaml: decode.max_errors: "),
    "steps: {../x: {use: x:Y}}": ("FK-INVALID-VALUE", "'../x' is no valid step name"),
    "steps: {'': {use: x:Y}}": ("FK-INVALID-VALUE", "'' is no valid step name"),
    "steps: {<script>: {use: x:Y}}": ("FK-INVALID-VALUE", "'<script>' is no valid step name"),
    'steps: {"a\\n": {use: x:Y}}': ("FK-INVALID-VALUE", "is no valid step name"),
    "steps: {decode: {use: x:Y}}": ("FK-INVALID-VALUE", "'decode' stands for decoding"),
    "- a list": ("FK-NOT-A-MAPPING", "p.yaml"),
    "a: [": ("FK-NOT-YAML", "line 1, column 5"),
    "input: a\ninput: b\nsteps: {}": ("FK-NOT-YAML", "'input' is there twice"),
    "steps: {a: {use: x:Y}, a: {use: x:Z}}": ("FK-NOT-YAML", "'a' is there twice"),
    "steps: {a: !!python/object/apply:os.system ['true']}": ("FK-NOT-YAML", "p.yaml"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_a_pipeline_file(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    code, value = MISTAKES[text]
    with fails(code, value):
        read_pipeline(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        ("steps: {pose: {wokers: 2}}", "FK-UNKNOWN-KEY", "'wokers' in steps.pose. Did you mean 'workers'"),
        ("stages: [pose]", "FK-UNKNOWN-KEY", "'stages'. Did you mean 'steps'"),
        ("defaults: {with: {a: 1}}", "FK-UNKNOWN-KEY", "'with' in defaults"),
        ("decode: {batch: 1}", "FK-UNKNOWN-KEY", "'batch' in decode"),
        ("targets: [pose.speed>1]", "FK-INVALID-VALUE", "targets.0: 'pose.speed>1' is no target"),
        ("defaults: {batch: 0}", "FK-INVALID-VALUE", "defaults.batch: "),
        ("steps: {pose: {device: gpu}}", "FK-INVALID-VALUE", "steps.pose.device: "),
        ("steps: {pose: {chunks: {faces: 0}}}", "FK-INVALID-VALUE", "steps.pose.chunks.faces: "),
        ("vram_gb: 0", "FK-INVALID-VALUE", "p.yaml: vram_gb: "),
    ],
)
def test_mistakes_in_a_profile(tmp_path, text, code, value):
    (tmp_path / "p.yaml").write_text(text)
    with fails(code, value):
        read_profile(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_is_stored_by_the_keys_of_its_file_and_read_back(name):
    profile = read_profile(name)
    stored = profile.model_dump(by_alias=True, exclude_none=True)
    assert stored["steps"] == profile.steps and "gpu_vram_gb" not in stored
    assert ProfileFile.model_validate(stored).model_dump(by_alias=True, exclude_none=True) == stored


def test_null_means_the_stage_and_auto_the_cores():
    entry = ProfileFile.model_validate({"steps": {"crc": {"workers": "auto", "batch": None}}}).steps["crc"]
    assert entry == {"workers": "auto", "batch": None}


@pytest.mark.parametrize("number", ["0", "-1", "true", "many", "1.5"])
@pytest.mark.parametrize("place", ["decode", "defaults", "steps: {pose"])
def test_no_workers_are_refused(tmp_path, place, number):
    (tmp_path / "p.yaml").write_text(f"{place}: {{workers: {number}}}{'}' if '{' in place else ''}")
    with pytest.raises(ConfigError) as error:
        read_profile(str(tmp_path / "p.yaml"))
    assert error.value.code == "FK-INVALID-VALUE" and re.search(r"p.yaml: \w+(.pose)?.workers: ", str(error.value))


def test_keys_of_an_anchor_may_be_overridden(tmp_path):
    text = "defaults: &all {gpus: 0, batch: 4}\nsteps: {pose: {<<: *all, batch: 8}}"
    (tmp_path / "p.yaml").write_text(text)
    assert read_profile(str(tmp_path / "p.yaml")).steps["pose"] == {"gpus": 0, "batch": 8}


def test_unknown_profiles_and_files():
    for read, name, code in (
        (read_profile, "cpu-olny", "FK-UNKNOWN-PROFILE"),
        (read_profile, "nowhere.yaml", "FK-NO-SUCH-FILE"),
        (read_pipeline, "nowhere.yaml", "FK-NO-SUCH-FILE"),
    ):
        with pytest.raises(ConfigError) as error:
            read(name)
        assert error.value.code == code and name in str(error.value)
        assert ("'cpu-only'" in str(error.value)) == (name == "cpu-olny")
