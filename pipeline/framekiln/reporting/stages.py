"""Stages rebuilt from run.json alone, since an output outlives its pipeline file."""

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from framekiln.contract.stage import Stage


def rebuild(steps: Mapping[str, Any]) -> dict[str, Stage]:
    """Return stages by step of a run.json. A step whose code is missing or of another version is left out."""
    stages = {name: _rebuild_stage(step) for name, step in steps.items()}
    return {name: stage for name, stage in stages.items() if stage is not None}


def _rebuild_stage(step: Mapping[str, Any]) -> Stage | None:
    module, _, attribute = str(step.get("use", "")).partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
        if not (isinstance(kind, type) and issubclass(kind, Stage)):
            return None
        stage = kind(TypeAdapter(kind.Config).validate_python(dict(step.get("settings", {}))))
    except Exception:  # code of another version may raise anything; readers continue without the stage
        return None
    return stage if stage.version == step.get("version", stage.version) else None
