"""Models of the bench: names, factories and example inputs."""

from __future__ import annotations

import sys

import pytest
import torch

from framekiln.contract.errors import ConfigError
from framekiln.lab.measure.prepared import example_inputs
from framekiln.lab.models.factory import Factory
from framekiln.lab.models.registry import find_model, known_models
from framekiln.lab.modules import UnsupportedError, tensors_in
from framekiln.lab.output.cells import Cell
from framekiln.planning.manifest import read_pipeline
from framekiln.weights.resolver import default_lock


def build(name):
    return Factory(use=f"tests.lab.models:{name}", settings={}).build()


def test_inputs_of_a_function_follow_the_cell():
    built = build("plain")
    assert dict(built.axes) == {"batch": 1, "size": 12}
    assert example_inputs(built, Cell()).shape == (1, 12)
    assert example_inputs(built, Cell(batch=3, size=5)).shape == (3, 5)


def test_inputs_are_the_same_each_time_and_weights_are_too():
    built, again = build("plain"), build("plain")
    assert torch.equal(example_inputs(built, Cell(batch=2)), example_inputs(built, Cell(batch=2)))
    assert torch.equal(built.module[0].weight, again.module[0].weight)


def test_a_tensor_is_repeated_for_the_batch():
    built = build("tensors")
    assert example_inputs(built, Cell(batch=3)).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]


def test_the_rows_of_a_tensor_are_the_models_own_batch():
    assert dict(build("tensors").axes) == {"batch": 2}


def test_a_module_alone_is_called_on_images():
    assert example_inputs(build("alone"), Cell(batch=2, size=32)).shape == (2, 3, 32, 32)


def test_an_axis_that_the_inputs_lack_is_unsupported():
    with pytest.raises(UnsupportedError):
        example_inputs(build("plain"), Cell(frames=8))


@pytest.mark.parametrize("use", ["tests.lab.models:nothing", "tests.lab.no_module:x", "tests.lab.models:not_a_module"])
def test_a_factory_that_gives_no_model_is_a_mistake(use):
    with pytest.raises(ConfigError) as error:
        Factory(use=use, settings={}).build()
    assert error.value.code == "FK-BENCH-FACTORY"


def test_a_module_of_the_current_folder_is_found(tmp_path, monkeypatch):
    """The installed command does not have the current folder on its path."""
    (tmp_path / "mine_in_a_folder.py").write_text("def model(): ...")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert callable(Factory(use="mine_in_a_folder:model", settings={}).load())


@pytest.mark.parametrize("text", ["def f(:", "raise RuntimeError('no licence')"])
def test_a_module_that_cannot_be_imported_is_a_mistake(tmp_path, monkeypatch, text):
    (tmp_path / "broken_in_a_folder.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as error:
        find_model("broken_in_a_folder:f", read_pipeline(None))
    assert error.value.code == "FK-BENCH-FACTORY"


def test_a_step_is_no_model_of_clips_and_recordings():
    with pytest.raises(ConfigError) as error:
        find_model("faces", read_pipeline(None))
    assert error.value.code == "FK-BENCH-OPTION"


def test_an_unknown_model_is_a_mistake():
    with pytest.raises(ConfigError) as error:
        find_model("sam2.1-tny", read_pipeline(None))
    assert error.value.code == "FK-BENCH-MODEL" and "sam2.1-tiny" in str(error.value)


@pytest.mark.parametrize("name", known_models())
def test_each_model_of_the_registry_names_a_factory_and_weights_of_the_lockfile(name):
    entry = known_models()[name]
    assert callable(Factory(use=entry.use, settings=entry.with_).load())
    assert set(entry.weights) <= set(default_lock())


def test_tensors_are_found_in_structures():
    one, two = torch.zeros(1), torch.ones(1)
    assert [int(tensor) for tensor in tensors_in({"a": [one, (two,)], "b": None})] == [0, 1]
