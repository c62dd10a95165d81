"""Checks of settings, with the same message for the same mistake."""

from typing import Any


def require_at_least(config: Any, **least: float) -> None:
    """Check settings against their least values, by name; None passes. Raises ValueError: a setting is smaller."""
    for name, low in least.items():
        if (value := getattr(config, name)) is not None and not value >= low:
            raise ValueError(f"{name} must be at least {low}, not {value}")


def require_between(config: Any, names: tuple[str, ...], low: float = 0, high: float = 1) -> None:
    """Check that settings lie in a range, its ends included; None passes. Raises ValueError: a setting lies outside."""
    for name in names:
        if (value := getattr(config, name)) is not None and not low <= value <= high:
            raise ValueError(f"{name} must lie between {low:g} and {high:g}, not {value}")
