"""A mistake in a user's own stage is one sentence at `plan`, with a code for its cause."""

from __future__ import annotations

import sys

import pytest

from framekiln.planning.stage_building import own_folders
from tests.support.errors import fails
from tests.support.runs.plan_factory import plan

HEAD = """
from dataclasses import dataclass
import pyarrow as pa
from framekiln.contract.columns import field
from framekiln.contract.stage import Stage

class Mine(Stage):
    inputs = ("frame",)
    outputs = pa.schema([field("mine", pa.int64(), "Mine.")])

    def __call__(self, rows): ...
"""
DATACLASS = "    @dataclass(frozen={frozen}, kw_only=True)\n    class Config{base}:\n        level: int = 1\n"
MISTAKES = {
    "no module": (None, "FK-STAGE-NO-MODULE", "no module 'own_stage'"),
    "a syntax error": ("class Mine(:", "FK-STAGE-IMPORT", "SyntaxError"),
    "a missing import": ("import nowhere_to_be_found", "FK-STAGE-IMPORT", "'nowhere_to_be_found'"),
    "an error while it is imported": ("\n\nraise RuntimeError('two\\nlines')", "FK-STAGE-IMPORT", "own_stage.py:3"),
    "sys.exit while it is imported": ("import sys\n\nsys.exit(0)", "FK-STAGE-IMPORT", "SystemExit: 0 ("),
    "sys.exit in the constructor": (
        HEAD + "    def __init__(self, config):\n        raise SystemExit\n",
        "FK-STAGE-CONSTRUCTOR",
        "SystemExit",
    ),
    "an error without a message": (
        "class Silent(Exception):\n    def __str__(self):\n        raise KeyError\n\nraise Silent\n",
        "FK-STAGE-IMPORT",
        "its message raised KeyError",
    ),
    "no such class": (HEAD.replace("Mine", "Mime"), "FK-STAGE-NOT-FOUND", "Did you mean 'Mime'"),
    "a function": ("def Mine(): ...", "FK-NOT-A-STAGE", "'own_stage:Mine'"),
    "a class of another kind": ("class Mine: ...", "FK-NOT-A-STAGE", "'own_stage:Mine'"),
    "Config without its decorator": (
        HEAD + "    class Config(Stage.Config):\n        level: int = 1\n",
        "FK-STAGE-CONFIG",
        "@dataclass(frozen=True",
    ),
    "Config that is not frozen": (HEAD + DATACLASS.format(frozen=False, base=""), "FK-STAGE-CONFIG", "not a frozen"),
    "no super().__init__": (HEAD + "    def __init__(self, config): ...\n", "FK-STAGE-CONSTRUCTOR", "super().__init__"),
    "a constructor that fails": (
        HEAD + "    def __init__(self, config):\n        self.level = self.config.level\n",
        "FK-STAGE-CONSTRUCTOR",
        "no attribute 'config' (",
    ),
    "an abstract class": (HEAD.replace("    inputs = ", "    other = "), "FK-STAGE-CONSTRUCTOR", "inputs"),
    "a table without keys": (
        HEAD.replace("import Stage", "import Stage, Table")
        + "Table(schema=Mine.outputs, keys=(), description='Mine.')\n",
        "FK-STAGE-IMPORT",
        "keys of a table must name some of its columns",
    ),
    "inputs that are a text": (HEAD + "    inputs = 'frame'\n", "FK-STAGE-DECLARATION", "`inputs` is 'frame'"),
    "outputs that are a dict": (HEAD + "    outputs = {'a': int}\n", "FK-STAGE-DECLARATION", "`outputs` are a dict"),
    "a scope that is a text": (HEAD + "    scope = 'clip'\n", "FK-STAGE-DECLARATION", "`scope` is 'clip'"),
    "a table that is a schema": (
        "from framekiln.contract import Scope\n" + HEAD + "    scope, tables = Scope.MEDIA, {'best': pa.schema([])}\n",
        "FK-STAGE-DECLARATION",
        "'best' is a Schema",
    ),
    "outputs that must not be null": (
        HEAD + "    outputs = pa.schema([pa.field('a', pa.int8(), nullable=False)])\n",
        "FK-STAGE-DECLARATION",
        "'a' has nullable=False",
    ),
    "a table of a foreign folder": (
        "from framekiln.contract import Scope\n" + HEAD + "    scope, tables = Scope.MEDIA, {'../best': None}\n",
        "FK-STAGE-DECLARATION",
        "'../best'",
    ),
    "a halo below 0": (HEAD + "    halo = -1\n", "FK-STAGE-DECLARATION", "-1"),
    "a declaration that exits": (
        HEAD + "    inputs = property(lambda self: exit(0))\n",
        "FK-STAGE-CONSTRUCTOR",
        "SystemExit: 0",
    ),
    "no tables": (
        "from framekiln.contract import Scope\n" + HEAD + "    scope = Scope.MEDIA\n",
        "FK-STAGE-NO-OUTPUTS",
        "`tables`",
    ),
    "no outputs": (HEAD.replace("    outputs = ", "    other = "), "FK-STAGE-NO-OUTPUTS", "`outputs`"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_wrong_stage_is_one_sentence(case, tmp_path, monkeypatch):
    text, code, value = MISTAKES[case]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_stage", raising=False)
    if text is not None:
        (tmp_path / "own_stage.py").write_text(text)
    searched = [str(tmp_path)] if text is None else []
    with fails(code, value, "Step 'a' uses 'own_stage:Mine'", *searched):
        plan({"a": {"use": "own_stage:Mine"}})


def test_a_right_stage_is_planned(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_stage", raising=False)
    (tmp_path / "own_stage.py").write_text(HEAD + DATACLASS.format(frozen=True, base="(Stage.Config)"))
    result = plan({"a": {"use": "own_stage:Mine"}}, settings=("a.level=3",))
    assert result.first[0].stage.config.level == 3


def test_own_code_below_pythons_prefix_is_no_library(tmp_path, monkeypatch):
    """Containers keep programs in /usr/src/app, and their Python's prefix is /usr."""
    own, libraries = tmp_path / "src" / "app", tmp_path / "lib" / "python3.12" / "site-packages"
    others = [
        tmp_path / "local" / "lib" / "python3.12" / "dist-packages",
        tmp_path / "lib" / "python3" / "dist-packages",
    ]
    for folder in (own, libraries, *others):
        folder.mkdir(parents=True)
    monkeypatch.setattr("sys.base_prefix", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(own), str(libraries), *map(str, others)])
    assert own_folders() == [str(own)]
