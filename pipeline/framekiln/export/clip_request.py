"""The part of a request for an export that says which clips are cut, and how."""

from collections.abc import Sequence
from dataclasses import dataclass

from framekiln.contract.errors import ConfigError

SHOTS, FRAMES = "shots", "frames"
COPY, EXACT = "copy", "exact"


@dataclass(frozen=True, kw_only=True)
class ClipRequest:
    """The clips that are cut, and the way.

    Raises ConfigError: a number or a word is wrong.
    """

    of: str = SHOTS  # shots with a chosen frame, or chosen frames that follow each other
    cut: str = COPY  # from a key frame, or encoded again from the first frame to the last
    min_seconds: float = 0.0  # shorter clips are left out: video models are trained on clips of 2 s and more
    max_seconds: float | None = None  # longer ones are divided, as such models read so many frames at once
    columns: Sequence[str] = ()  # further ones of the clips' table, names or SQL expressions

    def __post_init__(self) -> None:
        if self.of not in (SHOTS, FRAMES) or self.cut not in (COPY, EXACT):
            message = f"Clips are of {SHOTS} or {FRAMES}, by {COPY} or {EXACT}, not of {self.of!r} by {self.cut!r}."
            raise ConfigError(message, code="FK-EXPORT-CLIPS")
        if self.min_seconds < 0 or (self.max_seconds is not None and self.max_seconds <= self.min_seconds):
            message = "The seconds of clips must rise: --min-seconds from 0 on, and --max-seconds above it."
            raise ConfigError(message, code="FK-EXPORT-SECONDS")

    @property
    def exact(self) -> bool:
        """Return whether clips have exactly the frames that were asked for."""
        return self.cut == EXACT
