"""Columns and tables of the shipped pipeline, to name the step that another pipeline or an output lacks."""

from functools import cache

from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.stage_building import build_all


@cache
def find_fix(key: str) -> str:
    """Return a sentence on the shipped step that adds a column, or writes a table (`name/`); empty if none does."""
    if key == "identity":
        return " A frame may show several people: use list_contains(identities, 0)."
    for name, stage in build_all(read_pipeline(None), ProfileFile(), {}).items():
        if key in (*stage.outputs.names, *(f"{table}/" for table in stage.tables)):
            return f" Run the step {name!r}, which {'writes' if key.endswith('/') else 'adds'} it."
    return ""
