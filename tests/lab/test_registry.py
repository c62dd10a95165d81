"""The models of the registry on the meta device, against published counts; a stage as a model."""

from __future__ import annotations

import pickle

import pytest
import torch
from PIL import Image

from framekiln.contract.errors import ConfigError
from framekiln.device import flops_of
from framekiln.lab.measure.prepared import run
from framekiln.lab.measure.timed import MeasureOptions
from framekiln.lab.models.factory import Factory
from framekiln.lab.models.registry import find_model, known_models
from framekiln.lab.models.stage_model import stage_source
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.sweep.figures import measure_cell
from framekiln.planning.manifest import PipelineFile
from framekiln.runtime.stage_setup import set_up
from tests.support.media.material import weights

# millions of parameters and GFLOP of an item: V-JEPA 2 and RAFT as published, the encoder of 16 x 256 x 256 by hand;
# CLIP's, SAM 2.1's and ArcFace's are the parts of published totals that are measured here
COUNTS = {
    "clip-vit-b32": (87.5, 8.8),
    "sam2.1-tiny": (31.4, 296.3),
    "vjepa2-vitl": (326.0, 1655.7),
    "arcface-r50": (43.6, 12.6),
    "mobilefacenet": (0.99, 0.468),
    "raft-small": (0.99, 46.0),
}
MORE = {  # larger ones; the operations of SAM 2.1, LaMa and V-JEPA 2 are as counted here
    "clip-vit-l14": (303.2, 162.0),
    "siglip2-base": (92.9, 35.4),
    "sam2.1-small": (38.5, 364.1),
    "sam2.1-base-plus": (73.3, 651.5),
    "sam2.1-large": (216.9, 1828.6),
    "vjepa2-vith": (653.9, 3272.2),
    "vjepa2-vitg": (1034.6, 5087.7),
    "arcface-r100": (65.1, 24.2),
    "lama": (51.0, 439.8),
}


def test_each_name_has_its_counts():
    assert set(known_models()) == {*COUNTS, *MORE, "edgetam"}  # edgetam needs timm


@pytest.mark.parametrize("name", [*COUNTS, *(pytest.param(name, marks=pytest.mark.heavy) for name in MORE)])
def test_parameters_and_operations(name):
    entry = known_models()[name]
    with torch.device("meta"), torch.inference_mode():
        built = Factory(use=entry.use, settings=entry.with_, takes_weights=True).build()
        inputs = built.inputs(batch=1)
        flops = flops_of(lambda: run(built.module, inputs))
    params = sum(tensor.numel() for tensor in built.module.parameters())
    assert (params / 1e6, flops / 1e9) == pytest.approx((COUNTS | MORE)[name], rel=0.01)


def test_weights_of_an_onnx_file_are_counted():
    source = find_model("mobilefacenet", PipelineFile(steps={}), weights("MobileFaceNet.onnx").parent)
    assert source.about()["params"] == pytest.approx(0.99e6, rel=0.01)


def test_either_of_two_published_weights_is_taken():
    folder = weights("raft_small_torchvision.pth").parent
    assert find_model("raft-small", PipelineFile(steps={}), folder).weights == "real: raft_small_torchvision.pth"


def test_a_stage_is_called_on_rows_of_photos(tmp_path, monkeypatch):
    from tests.support.media.photos import photo_file

    source = stage_source("faces", [str(photo_file("china.jpg"))], "cpu", tmp_path, rows=2)
    model, number = source, []
    monkeypatch.setattr("framekiln.lab.models.stage_model.set_up", lambda step: number.append(1) or set_up(step))
    assert model.about() == model.about() and len(number) == 1
    prepared = model.prepare(Cell(batch=2), "cpu")
    prepared.before(0)
    assert prepared.call().num_rows == 2 and prepared.items == 2 and prepared.agreement is not None


def test_a_step_that_was_set_up_for_its_rows_goes_to_another_process(tmp_path):
    from tests.support.media.photos import photo_file

    source = stage_source("flow", [str(photo_file("china.jpg"))], "cpu", tmp_path, rows=1)
    assert source.weights == "none" and pickle.loads(pickle.dumps(source)).about()["params"] == 0


def test_a_step_that_looks_ahead_is_called_on_consecutive_frames_and_its_halo(tmp_path):
    from tests.support.media.photos import photo_file

    photo = photo_file("china.jpg")
    frames = [Image.open(photo).crop((i, 0, i + 96, 64)) for i in range(6)]
    frames[0].save(tmp_path / "pan.png", save_all=True, append_images=frames[1:], duration=40)
    source = stage_source("flow", [str(tmp_path / "pan.png"), str(photo)], "cpu", tmp_path, rows=4)
    prepared = source.prepare(Cell(batch=1), "cpu")
    prepared.before(0)
    assert prepared.items == 1 and prepared.call()["motion_mean"][0].as_py() is not None


def test_a_step_without_a_network_in_torch_has_a_note_in_place_of_layers(tmp_path):
    from tests.support.media.photos import photo_file

    source = stage_source("lighting", [str(photo_file("china.jpg"))], "cpu", tmp_path, rows=1)
    options = MeasureOptions(iterations=3, warmup=1, warmup_s=0, layers=True)
    result = measure_cell(source, CellResult(cell=Cell(), model="lighting", outcome="ok"), options)
    assert result.layers == () and any("no layers" in note for note in result.notes)
    assert result.extra == {}, "without a model there is no share of its rate"


@pytest.mark.heavy
def test_a_step_is_timed_beside_its_models_calls_alone(tmp_path):
    from tests.support.media.photos import photo_file

    source = stage_source("categorize", [str(photo_file("china.jpg"))], "cpu", tmp_path, rows=1)
    options = MeasureOptions(iterations=1, warmup=0, warmup_s=0)
    result = measure_cell(source, CellResult(cell=Cell(), model="categorize", outcome="ok"), options)
    share = result.extra["model_share"]
    assert 0 < share["low"] <= share["factor"] <= share["high"] and share["turns"] in (1, 5)


def test_a_step_of_the_second_pass_is_no_model(tmp_path):
    with pytest.raises(ConfigError) as error:
        stage_source("tracks", [], "cpu", tmp_path)
    assert error.value.code == "FK-BENCH-SECOND-PASS"
