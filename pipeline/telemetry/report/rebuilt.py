"""Stages as they were configured, from run.json alone: an old output outlives the manifests that ordered it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from pipeline.stage import Stage


def rebuild(steps: Mapping[str, Any]) -> dict[str, Stage]:
    """Stages by step, from the `steps` of run.json; left out are those whose code is gone or of another version."""
    found = {name: _stage(step) for name, step in steps.items()}
    return {name: stage for name, stage in found.items() if stage is not None}


def _stage(step: Mapping[str, Any]) -> Stage | None:
    module, _, attribute = str(step.get("use", "")).partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
        if not (isinstance(kind, type) and issubclass(kind, Stage)):
            return None
        stage = kind(TypeAdapter(kind.Config).validate_python(dict(step.get("settings", {}))))
    except Exception:  # whatever importing or building code of another version may raise: the report goes on without it
        return None
    return stage if stage.version == step.get("version", stage.version) else None
