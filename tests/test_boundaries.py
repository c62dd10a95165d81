"""Who may import what, read from the syntax trees: the boundaries that keep stages replaceable and the driver light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAGES = sorted((ROOT / "stages").glob("*.py"))
NETS = sorted((ROOT / "stages" / "nets").glob("*.py"))
PIPELINE = sorted((ROOT / "pipeline").rglob("*.py"))

STAGE_MAY = {"pipeline.stage", "pipeline.columns", "pipeline.device", "stages.nets"}
STAGE_MAY_NOT = {"ray", "yaml", "av", "requests", "urllib", "httpx", "pydantic", "typer", "rich"}
OWNERS = {  # outside library -> where in pipeline/ it may be imported
    "av": "media/",
    "cv2": ("media/", "telemetry/report/"),  # the report encodes its thumbnails
    "PIL": "media/",
    "simplejpeg": "media/",
    "ray": "engine/",
    "torch": ("device/", "telemetry/scalars.py"),  # its writer of TensorBoard's files
    "requests": "weights/download.py",
    "filelock": "weights/fetch.py",
    "rich": ("telemetry/", "cli.py", "commands/"),
    "typer": ("cli.py", "commands/"),
}


def imports(path: Path) -> set[str]:
    """Dotted names of everything a module imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module in ("pipeline", "stages")}
    return found


@pytest.mark.parametrize("path", STAGES + NETS, ids=lambda p: p.name)
def test_a_stage_knows_the_contract_and_nothing_else_of_ours(path):
    names = imports(path)
    ours = {name for name in names if name.split(".")[0] in ("pipeline", "stages")}
    assert {
        n
        for n in ours
        if not any(n == ok or n.startswith(f"{ok}.") for ok in STAGE_MAY) and n not in ("pipeline", "stages")
    } == set()
    assert {name.split(".")[0] for name in names} & STAGE_MAY_NOT == set()


@pytest.mark.parametrize("path", PIPELINE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_pipeline_knows_no_stage_by_name(path):
    assert {name for name in imports(path) if name.split(".")[0] == "stages"} == set()


@pytest.mark.parametrize("library", OWNERS)
def test_each_outside_library_has_one_owner(library):
    owners = OWNERS[library] if isinstance(OWNERS[library], tuple) else (OWNERS[library],)
    users = [
        str(path.relative_to(ROOT / "pipeline"))
        for path in PIPELINE
        if library in {name.split(".")[0] for name in imports(path)}
    ]
    assert [user for user in users if not user.startswith(owners)] == []


def test_the_contract_knows_pyarrow_and_the_standard_library_only():
    outside = {name.split(".")[0] for name in imports(ROOT / "pipeline" / "stage.py")} - set(sys.stdlib_module_names)
    assert outside == {"pyarrow"}


def test_no_module_hides_one_of_the_standard_library():
    """`python pipeline/run.py` puts that folder first on the path: its modules, and its folders too."""
    names = {path.stem for path in (ROOT / "pipeline").iterdir()}
    assert {"plan", "media"} <= names
    assert names & sys.stdlib_module_names == set()


def test_the_driver_plans_without_heavy_libraries():
    plan = "from pipeline.cli import main\ntry:\n    main(['plan'])\nexcept SystemExit:\n    pass"
    code = f"import sys\n{plan}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert {"torch", "ray", "mediapipe", "av", "librosa", "hdbscan", "transformers", "requests"} & loaded == set()
