"""Owners of outside libraries, and what a start may load; `lint-imports` keeps the order of our own packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAGES = sorted((ROOT / "stages").rglob("*.py"))
PACKAGE = ROOT / "pipeline" / "framekiln"
PIPELINE = sorted(PACKAGE.rglob("*.py"))
CODE = ("pipeline", "stages", "benchmarks", "examples", "tests")

STAGE_MAY_NOT = {"ray", "yaml", "av", "requests", "urllib", "httpx", "pydantic", "typer", "rich"}
OWNERS = {  # outside library -> where in the package it may be imported
    "av": ("media/",),
    "cv2": ("media/", "reporting/html/", "lab/sav/", "export/outlines.py"),  # thumbnails and overlays are encoded
    "PIL": ("media/",),
    "simplejpeg": ("media/",),
    "ray": ("engine/ray/",),
    "torch": (
        "device/",
        "lab/",
        "profiling/tools/torch_profiler.py",
        "profiling/export/live_metrics.py",
    ),
    "requests": ("weights/download.py",),
    "urllib3": ("weights/download.py", "media/web.py"),
    "filelock": ("weights/fetch.py",),
    "rich": ("reporting/terminal/", "reporting/compare/page.py", "cli/"),
    "typer": ("cli/",),
}


@cache
def imports(path: Path) -> set[str]:
    """Outside packages that a module imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_the_tree_is_read():
    assert len(STAGES) > 60 and len(PIPELINE) > 180


def test_a_stage_imports_no_library_of_the_pipeline():
    assert {str(path.relative_to(ROOT)): found for path in STAGES if (found := imports(path) & STAGE_MAY_NOT)} == {}


@pytest.mark.parametrize("library", OWNERS)
def test_each_outside_library_has_one_owner(library):
    users = [str(path.relative_to(PACKAGE)) for path in PIPELINE if library in imports(path)]
    assert users and [user for user in users if not user.startswith(OWNERS[library])] == []


def test_the_contract_knows_arrow_numpy_pydantic_and_the_standard_library_only():
    known = set.union(*(imports(path) for path in (PACKAGE / "contract").rglob("*.py")))
    assert known - set(sys.stdlib_module_names) == {"numpy", "framekiln", "pyarrow", "pydantic"}


def test_the_source_roots_hold_our_own_names_only():
    """`python pipeline/run.py` and an editable install put these folders on the path."""
    names = {path.stem for root in ("pipeline", "stages") for path in (ROOT / root).iterdir()}
    assert names - {"__pycache__"} == {"framekiln", "run", "framekiln_stages"}


def test_the_driver_plans_without_heavy_libraries():
    plan = "from framekiln.cli.app import main\ntry:\n    main(['plan'])\nexcept SystemExit:\n    pass"
    code = f"import sys\n{plan}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert {"torch", "ray", "mediapipe", "av", "librosa", "hdbscan", "transformers", "requests"} & loaded == set()


def loaded(code: str) -> set[str]:
    """Packages outside of the standard library that a piece of code loads in a new process."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} - set(sys.stdlib_module_names)


def test_importing_the_product_loads_nothing_else():
    """So it takes hundredths of a second, in each worker process too."""
    assert loaded("import framekiln") == {"framekiln"}
    heavy = {"torch", "ray", "cv2", "av", "PIL", "rich", "yaml", "jinja2", "scipy", "pandas"}
    assert loaded("from framekiln import Stage, UserError, field, stage") & heavy == set()


def test_files_and_functions_are_short():
    """At most 300 lines a file and 40 a function, so that each shows what it does on a screen or two."""
    long = []
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lengths = {
            node.name: (node.end_lineno or 0) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        place = path.relative_to(ROOT)
        long += [f"{place}: {text.count(chr(10))} lines"] * (text.count("\n") > 300)
        long += [f"{place}: {name} has {lines} lines" for name, lines in lengths.items() if lines > 40]
    assert long == []
