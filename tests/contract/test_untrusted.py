"""What would run code that lies in data is called nowhere but where a reason is given here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for name in ("pipeline", "stages", "benchmarks") for path in (ROOT / name).rglob("*.py"))

NEVER = {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"}
UNPICKLING = {"pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads"}
UNPICKLING |= {"marshal.loads", "shelve.open", "joblib.load", "pandas.read_pickle", "dill.loads", "torch.jit.load"}
MUST_SAY = {  # call -> the argument that makes it harmless
    "torch.load": ("weights_only", True),
    "numpy.load": ("allow_pickle", False),
}
ALLOWED = {
    (
        "pipeline/framekiln/contract/testing/declarations.py",
        "pickle.loads",
    ): "a stage that the check itself has just pickled",
    ("pipeline/framekiln/engine/local/child.py", "cloudpickle.loads"): "messages of the engine that started it",
    ("pipeline/framekiln/engine/local/engine.py", "cloudpickle.loads"): "messages of the process that it started",
    (
        "pipeline/framekiln/engine/ray/workers.py",
        "ray.cloudpickle.loads",
    ): "pieces of work that the driver sends; Ray pickles anyway",
    (
        "stages/framekiln_stages/nets/lama/network.py",
        "torch.jit.load",
    ): "LaMa is published as TorchScript only; the lockfile has its sha256",
}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Dotted names of what a module calls, with the modules' own names in place of what they are imported as."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            yield known.get(first, first) + dot + rest, node


def said(call: ast.Call, name: str) -> object:
    """A constant keyword argument; None where it is not given so."""
    values = [word.value for word in call.keywords if word.arg == name]
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


def dangers(path: Path) -> Iterator[str]:
    """Names of the calls that may run what data say."""
    for name, call in calls(path):
        tail = name.removeprefix("ray.")
        argument, value = MUST_SAY.get(name, ("", None))
        default = name == "numpy.load" and said(call, argument) is None  # it refuses pickles by itself
        unsaid = argument and said(call, argument) is not value and not default
        if unsaid or name in NEVER or tail in UNPICKLING or said(call, "shell") is True:
            yield name


def test_no_data_run_code_but_in_the_exceptions() -> None:
    assert {(str(path.relative_to(ROOT)), name) for path in SOURCES for name in dangers(path)} == set(ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        "import pickle as p; p.loads(b'')",
        "from pickle import loads; loads(b'')",
        "import torch; torch.load('x')",
        "import torch; torch.load('x', weights_only=False)",
        "import numpy as np; np.load('x', allow_pickle=True)",
        "import yaml; yaml.load('')",
        "import subprocess; subprocess.run('ls', shell=True)",
        "eval('1')",
    ],
)
def test_it_sees_them(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.py").write_text(line)
    assert len(list(dangers(tmp_path / "x.py"))) == 1
