"""Refusal of numbers that change nothing: a profile that states them would promise what no run keeps."""

from collections.abc import Mapping
from typing import Any

from framekiln.contract.errors import ConfigError, check_known
from framekiln.contract.stage import Scope, Stage
from framekiln.planning.manifest import ProfileFile
from framekiln.planning.settings import Overrides


def check_numbers(
    profile: ProfileFile, overrides: Overrides, stages: Mapping[str, Stage], device: str | None = None
) -> None:
    """Check that each number that a profile or --set states for a step has an effect.

    `defaults` of a profile are not checked: they are for the steps that use them. `device` is the command line's, for
    all steps that support it.

    Raises:
        ConfigError: a number has no effect; the message says why.
    """
    for name, stage in stages.items():
        common, entry, typed = profile.defaults, profile.steps.get(name, {}), overrides.get(name, {})
        merged = {**common, **entry, **typed}
        kind = merged.get("device") or stage.placement.device
        kind = "cuda" if device == "cuda" and device in stage.devices else kind
        for source, values in ((f"The profile's {name}", entry), (f"--set {name}", typed)):
            for key, value in values.items():
                if value is not None and (reason := _explain_idle(key, value, stage, kind, merged.get("group"))):
                    raise ConfigError(
                        f"{source}.{key}={value} has no effect: {reason}; remove it.", code="FK-NO-EFFECT"
                    )
                if key == "chunks" and isinstance(value, Mapping):  # else refused as a placement
                    _check_chunks(f"{source}.chunks", stage, value)
    entries = [profile.defaults, *profile.steps.values(), *overrides.values()]
    on_gpu = any(entry.get("device") == "cuda" for entry in entries) or device == "cuda"
    if profile.gpu_vram_gb and not on_gpu and not any(s.placement.device == "cuda" for s in stages.values()):
        problem = f"The profile's vram_gb={profile.gpu_vram_gb:g} has no effect: no step runs on a GPU; remove it."
        raise ConfigError(problem, code="FK-NO-EFFECT")


def _check_chunks(where: str, stage: Stage, chunks: Mapping[str, int]) -> None:
    if stage.chunk_kinds is None:
        return
    for kind in chunks:
        if not stage.chunk_kinds:
            raise ConfigError(f"{where}.{kind} has no effect: the step has no chunks; remove it.", code="FK-NO-EFFECT")
        check_known(kind, stage.chunk_kinds, f"{where}: the step has no chunks of {kind!r}.", code="FK-NO-EFFECT")


def _explain_idle(key: str, value: Any, stage: Stage, device: str, group: str | None) -> str:
    """Return why a value of a placement has no effect on a device; empty if it has one."""
    scope = stage.scope
    match key:
        case "batch" if scope is not Scope.ROW:
            return f"each call of the step gets one {scope.value}"
        case "workers" if scope is Scope.DATASET and value not in (1, "auto"):
            return "one call of the step gets all rows"
        case "gpus" | "vram_gb" | "linger_ms" if value and device == "cpu":
            return "the step runs on the CPU"
        case "timeout_s" | "in_flight" | "linger_ms" if not scope.first_pass:
            return "it is for steps of the first pass"
        case "in_flight" if device == "cpu" and not (stage.weights or group):
            return "only processes that keep a model work on several packets at a time"
    return ""
