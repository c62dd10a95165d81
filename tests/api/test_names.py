"""The names of `framekiln`, loaded when they are asked for."""

from __future__ import annotations

import inspect
import typing
from importlib.metadata import version

import pytest

import framekiln


def test_all_names_are_there():
    assert all(getattr(framekiln, name) is not None for name in framekiln.__all__)
    assert set(framekiln.__all__) <= set(dir(framekiln)) and framekiln.__version__ == version("framekiln")
    with pytest.raises(AttributeError, match="runn"):
        _ = framekiln.runn


@pytest.mark.parametrize("name", sorted(set(framekiln.__all__) - {"__version__"}))
def test_each_name_is_documented(name):
    value = getattr(framekiln, name)
    assert inspect.getdoc(value), name
    if inspect.isclass(value):
        own = [member for key, member in vars(value).items() if not key.startswith("_") and callable(member)]
        assert [member for member in own if not inspect.getdoc(member)] == []


def test_help_lists_each_option_with_its_type():
    for function in (framekiln.run, framekiln.plan, framekiln.bench):
        options = [item for item in inspect.signature(function).parameters.values() if item.kind is item.KEYWORD_ONLY]
        assert len(options) > 20
        assert all(item.annotation is not item.empty and item.default is not item.empty for item in options)
    assert typing.get_args(inspect.signature(framekiln.run).parameters["missing_weights"].annotation) == (
        "fail", "skip", "dummy",
    )  # fmt: skip
