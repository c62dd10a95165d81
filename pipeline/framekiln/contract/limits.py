"""Types of settings with limits. Limits are checked with the types."""

from typing import Annotated

from pydantic import Field as Limits

Natural = Annotated[int, Limits(ge=0)]
"""0, 1, 2, ..."""
Count = Annotated[int, Limits(ge=1)]
"""1, 2, 3, ..."""
NonNegative = Annotated[float, Limits(ge=0)]
Positive = Annotated[float, Limits(gt=0)]
Proportion = Annotated[float, Limits(ge=0, le=1)]
"""From 0 to 1, both included."""

__all__ = ["Count", "Limits", "Natural", "NonNegative", "Positive", "Proportion"]
