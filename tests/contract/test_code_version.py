"""The version of a function changes with all that it uses, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pyarrow as pa
import pytest

from framekiln.contract.code_version import version_of
from framekiln.contract.function_stage import stage
from tests.support.errors import fails

BASE = """
from functools import cache
import numpy as np

LIMIT, KERNEL, NAMES = 3, np.eye(3), {"b", "a", "c"}

def helper(image):
    return image.mean() * LIMIT

@cache
def table(size=4):
    return list(range(size))

def measure(image, power=2):
    '''Measure.'''
    return [helper(image) ** power for _ in table()] if KERNEL.sum() and "a" in NAMES else other(image)

def other(image):
    return measure(image)
"""


def version(text, *, inputs="frame", dtype=None):
    """The version of `measure` in a module's text."""
    sys.modules["measured"] = module = ModuleType("measured")  # where dataclasses look for types
    exec(compile(text, "measured.py", "exec", dont_inherit=True), module.__dict__)
    return stage(inputs=inputs, outputs={"number": dtype or pa.float32()})(module.measure)().version


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("** power for", "** power + 1 for"),
        ("power=2", "power=3"),
        ("mean()", "max()"),
        ("LIMIT, KERNEL, NAMES = 3,", "LIMIT, KERNEL, NAMES = 4,"),
        ("np.eye(3)", "np.eye(4)"),
        ('"c"}', '"d"}'),
        ("size=4", "size=5"),
        ("return measure(image)", "return measure(-image)"),
    ],
)
def test_an_edited_function_has_another_version(old, new):
    assert old in BASE and version(BASE.replace(old, new)) != version(BASE)


def test_other_inputs_or_types_are_another_version():
    assert len({version(BASE), version(BASE, inputs="frame_224"), version(BASE, dtype=pa.float64())}) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'''Measure.'''", "'''Measures.'''"),
        ("LIMIT\n", "LIMIT  # three\n"),
        ("\n\ndef", "\n\n\n\ndef"),
        ("LIMIT, ", "mean = sum = 5\nLIMIT, "),  # the function has these names as attributes alone
    ],
)
def test_what_does_nothing_is_no_part_of_the_version(old, new):
    assert old in BASE and version(BASE.replace(old, new)) == version(BASE)


def test_the_version_is_the_same_in_another_process():
    code = "from tests.contract.test_code_version import *; print(version(BASE), *map(version, EVERY))"
    here = " ".join(map(version, [BASE, *EVERY]))
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == here


USED = {
    "an object's attribute": ("from types import SimpleNamespace\nused = SimpleNamespace(limit=3)", "3", "4"),
    "a dataclass": ("from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int = 3\nused = A()", "3", "4"),
    "a class's constant": ("class used:\n    limit = 3", "3", "4"),
    "a method": ("class A:\n    def b(self):\n        return 3\nused = A()", "3", "4"),
    "a method that is bound": ("class A:\n    def b(self):\n        return 3\nused = A().b", "3", "4"),
    "a property": ("class used:\n    @property\n    def b(self):\n        return 3", "3", "4"),
    "a class method": ("class used:\n    @classmethod\n    def b(cls):\n        return 3", "3", "4"),
    "a base": ("class A:\n    limit = 3\nclass used(A):\n    pass", "3", "4"),
    "a member": ("import enum\nA = enum.Enum('A', 'b c')\nused = A.b", "A.b", "A.c"),
    "a pattern": ("import re\nused = re.compile('b')", "'b'", "'c'"),
    "a path": ("from pathlib import Path\nused = Path('b')", "'b'", "'c'"),
    "a partial": ("from functools import partial\nused = partial(pow, 3)", "3", "4"),
    "code under a partial": ("from functools import partial\ndef a():\n    return 3\nused = partial(a)", "3", "4"),
    "a decorator": (
        "from functools import wraps\ndef a(b):\n    @wraps(b)\n    def c():\n        return 3 * b()\n"
        "    return c\n@a\ndef used():\n    return 1",
        "3",
        "4",
    ),
    "a table": ("import pyarrow as pa\nused = pa.table({'a': [3]})", "3", "4"),
    "a frame": ("import pandas as pd\nused = pd.DataFrame({'a': [3], 'b': ['c']})", "'c'", "'d'"),
    "an array of objects": ("import numpy as np\nused = np.array([3, None])", "3", "4"),
    "a tensor": ("import torch\nused = torch.tensor([3.0], dtype=torch.bfloat16, requires_grad=True)", "3", "4"),
    "a model": ("import torch\nused = torch.nn.Linear(1, 1)\nused.weight.data[:] = used.bias.data[:] = 3", "3", "4"),
    "a circle": ("used = [3]\nused.append(used)", "3", "4"),
}
EVERY = [f"{text}\ndef measure(image):\n    return used\n" for text, _, _ in USED.values()]


@pytest.mark.parametrize(("text", "old", "new"), USED.values(), ids=USED)
def test_another_value_that_a_function_uses_is_another_version(text, old, new):
    text += "\ndef measure(image):\n    return used\n"
    assert old in text and version(text.replace(old, new)) != version(text)


def test_use_of_a_random_generator_or_of_what_cannot_be_pickled_is_no_other_version():
    text = "import numpy as np, threading\nused = np.random.default_rng({}), threading.Lock()\n"
    text += "def measure(image):\n    return used"
    assert version(text.format(1)) == version(text.format(2))


def test_a_value_that_is_nested_too_deeply_needs_a_version():
    with fails("FK-STAGE-FUNCTION"):
        version("used = None\nfor _ in range(5000):\n    used = [used]\ndef measure(image):\n    return used")


STAGE = """
from framekiln.contract import Stage
LIMIT = 3
class Mine(Stage):
    inputs = ("time_s",)
    def __call__(self, batch):
        return super().__call__(self.cut(batch))
    def cut(self, batch):
        return batch[:LIMIT]
"""


def version_in(module, text):
    space = {"__name__": module}
    exec(compile(text, "measured.py", "exec"), space)
    return version_of(space["Mine"]())


def test_a_class_of_a_notebook_has_the_version_of_its_code_unless_it_states_one():
    first = version_in("__main__", STAGE)
    assert first == version_in("__main__", STAGE.replace("\n    def", "\n\n    def"))
    for old, new in (("LIMIT = 3", "LIMIT = 4"), ("batch[:LIMIT]", "batch[LIMIT:]"), ('"time_s"', '"width"')):
        assert version_in("__main__", STAGE.replace(old, new)) != first
    stated = STAGE.replace("    inputs", "    version = 7\n    inputs")
    assert (version_in("__main__", stated), version_in("mine", stated), version_in("mine", STAGE)) == (7, 7, 1)
