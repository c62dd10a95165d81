"""Settings that make no sense are refused at planning, by name and with one code, in every stage."""

from __future__ import annotations

import pytest

from framekiln.contract.errors import ConfigError
from framekiln.planning.manifest import StepEntry
from framekiln.planning.stage_building import build

WRONG = {
    "categorize:Categorize": [
        *({"model": "clip-vit-b3"}, {"categories": ["cat"]}, {"categories": ["cat", "cat"]}, {"templates": []}),
        *({"categories": {"cat": [], "dog": ["a dog"]}}, {"templates": ["a photo"]}, {"top_k": 0}, {"size": -1}),
        *({"masked_margin": -0.1}, {"context_margin": 11}, {"of": "x"}),
    ],
    "faces:Faces": [
        *({"max_faces": 0}, {"size": -1}, {"detect_side": -1}, {"min_side": -1}, {"min_score": 1.5}),
        {"detect_side": 100, "detector": "scrfd"},
    ],
    "flow:Flow": [{"preset": "slow"}, {"backend": "horn"}, {"model": "raft-large"}],
    "identities:Identities": [
        *({"min_cluster_size": 1}, {"min_samples": 0}, {"one_person": 1.0}, {"assign": -0.1}, {"strangers": 0.6}),
        {"named": f"{'x' * 300}.csv"},  # the system refuses such a name
    ],
    "inpaint:Inpaint": [
        *({"categories": [], "region": "category"}, {"column": "", "region": "column"}),
        *({"mask_folder": "", "region": "files"}, {"dilate": -1}, {"margin": float("nan")}, {"feather": 9}),
        *({"max_side": 100}, {"max_side": 0}, {"min_probability": 2}),
    ],
    "quality:Quality": [{"pixels": "full"}],
    "mouth:Mouth": [{"max_faces": 0}, {"min_presence_confidence": 2.0}],
    "objects:Objects": [
        *({"model": "sam3"}, {"prompt_file": "", "prompts": "points"}, {"prompt_file": "a.csv"}),
        *({"prompt_file": "a.txt", "prompts": "boxes"}, {"max_objects": 0}),
    ],
    "pose:Pose": [
        *({"max_people": 0}, {"size": -1}, {"min_detection_confidence": 1.5}, {"min_presence_confidence": -0.1}),
    ],
    "segment:Segment": [
        *({"model": "sam3"}, {"points_per_side": 0}, {"max_masks": 0}, {"size": -1}, {"box_nms_thresh": 1.5}),
        *({"prompt_column": "", "prompts": "points"}, {"prompt_column": "faces"}),
        {"crop_n_layers": 1, "prompts": "boxes", "prompt_column": "f"},
        {"prompt_file": "a.txt", "prompts": "boxes"},
    ],
    "shots:Shots": [{"cut": 1.5}, {"shortest_s": 0}, {"flash": 0}, {"longest_s": -1}, {"dissolve": -1}],
    "sync:Sync": [{"search_s": 0.0}, {"min_confidence": 1.5}, {"low_hz": 9.0}],
    "tracks:Tracks": [
        *({"least_likeness": 0}, {"least_likeness": 1.1}, {"bridge_s": -1}, {"min_cutoff": 0}, {"beta": -1}),
    ],
    "voice:Voice": [{"middle_band": (500.0, 9000.0)}, {"chunk": 10}],
}
"""Settings by stage; the first one is at fault."""


@pytest.mark.parametrize(
    ("use", "settings"), [(use, settings) for use, several in WRONG.items() for settings in several], ids=str
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(use, settings):
    name, value = next(iter(settings.items()))
    with pytest.raises(ConfigError) as error:
        build("step", StepEntry.model_validate({"use": f"framekiln_stages.{use}", "with": settings}), {})
    assert error.value.code == "FK-INVALID-SETTING"
    assert name in str(error.value) or str(value) in str(error.value)
