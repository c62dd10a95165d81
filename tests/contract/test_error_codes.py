"""Every error has a code, and docs/errors.md lists each code with cause and fix."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from framekiln.contract import errors

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "pipeline").rglob("*.py"))
CATALOGUE = (ROOT / "docs" / "errors.md").read_text("utf-8")
FORM = re.compile(r"FK-[A-Z0-9]+(-[A-Z0-9]+)*")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a module."""
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


@cache
def classes() -> frozenset[str]:
    """Names of Framekiln's errors, also of those that other modules derive; not of MediaError, which has one code."""
    names = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.FramekilnError) and name != "MediaError"
    }
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & names:
                names.add(node.name)
    return frozenset(names - {"MediaError"})


def takes_code(node: ast.AST) -> bool:
    """Whether a node defines a function with a keyword-only parameter `code`."""
    return isinstance(node, ast.FunctionDef) and any(argument.arg == "code" for argument in node.args.kwonlyargs)


def needs_code(node: ast.FunctionDef) -> bool:
    """Whether that parameter has no default."""
    given = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return any(argument.arg == "code" and default is None for argument, default in given)


def takers(path: Path) -> frozenset[str]:
    """Names of a module's functions that make errors with their callers' code: their calls need one in turn."""
    return frozenset(node.name for node in nodes(path) if takes_code(node) and needs_code(node))


@cache
def helpers() -> frozenset[str]:
    """Names of the public ones of all modules."""
    return frozenset(name for path in SOURCES for name in takers(path) if not name.startswith("_"))


def uncoded(path: Path) -> Iterator[int]:
    """Lines where a module makes an error without a literal code."""
    makers = classes() | helpers() | takers(path)
    passed_on = {call for node in nodes(path) if takes_code(node) for call in ast.walk(node)}
    for node in nodes(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in makers:
            codes = [ast.unparse(word.value) for word in node.keywords if word.arg == "code"]
            known = ["code"] if node in passed_on else []
            if not any(FORM.search(code) or code in known or code.endswith(".code") for code in codes):
                yield node.lineno


def in_source() -> set[str]:
    """All codes in the source."""
    return {code for path in SOURCES for code in re.findall(r'"(FK-[A-Z0-9-]+)"', path.read_text("utf-8"))}


def test_each_error_has_a_code():
    assert {str(path): lines for path in SOURCES if (lines := list(uncoded(path)))} == {}


def test_the_catalogue_lists_each_code_once_and_no_other():
    listed = re.findall(r"^\| `(FK-[A-Z0-9-]+)` \|", CATALOGUE, re.M)
    assert sorted(listed) == sorted(in_source())


def test_each_entry_has_cause_and_fix():
    rows = [line.split("|")[1:-1] for line in CATALOGUE.splitlines() if line.startswith("| `FK-")]
    assert rows and all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows)
