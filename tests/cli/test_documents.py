"""Documents that are true: README's commands run as they stand, and those of other documents can be parsed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from framekiln.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
ELSEWHERE = ("python -m pip install", "framekiln fetch", "make demo-full")
"""README's commands that change the Python of this test, or download gigabytes."""
HISTORY = {"CHANGELOG.md", "log.md"}  # they name what was, too


def commands(document: Path) -> list[str]:
    """Lines of a document's bash blocks, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", document.read_text("utf-8"), re.S)
    joined = [block.replace("\\\n", " ") for block in blocks]
    lines = [re.sub(r"\s+#.*", "", line).strip() for block in joined for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(1200)  # several whole runs
def test_readme_commands_run_as_they_stand():
    lines = commands(ROOT / "README.md")
    assert {"make demo", "framekiln profile out/mine", "framekiln columns"} <= set(lines)
    demo, mine = ROOT / "out" / "demo", ROOT / "out" / "mine"
    for out in (demo, mine):
        shutil.rmtree(out, ignore_errors=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in [line for line in lines if not line.startswith(ELSEWHERE)]:
        if line.startswith("framekiln run") and demo.exists():  # the same run again: it has the rows of `make demo`
            shutil.copytree(demo, mine, dirs_exist_ok=True)
        done = subprocess.run(
            ["bash", "-c", line], cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
        assert done.stdout.strip(), line


def test_readme_names_the_version_of_torch_that_was_tested():
    readme, tested = ((ROOT / name).read_text("utf-8") for name in ("README.md", "constraints.txt"))
    assert re.findall(r"torch==[\d.]+", readme) == re.findall(r"^torch==[\d.]+", tested, re.M)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_can_be_parsed(document):
    group = typer.main.get_group(app)
    for line in commands(document):
        words = shlex.split(line)
        if words[0] != "framekiln" or words[1].isupper():
            continue
        command = group.commands[words[1]]
        command.make_parser(command.make_context(words[1], [], resilient_parsing=True)).parse_args(words[2:])


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if path.name not in HISTORY], ids=lambda path: path.name
)
def test_files_that_documents_name_exist(document):
    text = document.read_text("utf-8")
    links = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text))
    assert [link for link in sorted(links) if not (document.parent / link).exists()] == []
    folder = ROOT / "tests" if document.parent.name == "tests" else ROOT  # tests/README.md names files from there
    folders = "|".join(path.name for path in folder.iterdir() if path.is_dir() and path.name != "out")
    paths = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", text))
    made_by_demo = {"samples/media"}
    assert [path for path in sorted(paths - made_by_demo) if not (folder / path).exists()] == []
