"""What several stages have in common: checks of settings, and bases of stages that look at one pixel column."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from framekiln.contract import Placement, Stage, Weights, pixel_column


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


class PixelStage(Stage):
    """A stage with a setting `size`: the short side of the pixels, as in frame_512; 0 is full size."""

    thread_safe = True

    @property
    def pixels(self) -> str:
        """Name of the pixel column that is read."""
        return pixel_column(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels only, since results are in fractions of the image's size."""
        return (self.pixels,)


class LandmarkStage(PixelStage):
    """A stage that finds landmarks by one of MediaPipe's networks, image by image."""

    chunk_kinds = ()
    network: ClassVar[Callable[..., Any]]  # a class of `framekiln_stages.nets.mediapipe_tasks`

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The model, the size of its pixels, and the least confidences.

        Raises ValueError: `size` is negative, the limit below 1, or a confidence outside 0 to 1.
        """

        limit: ClassVar[str]  # name of a subclass's setting: the most people or faces of one image
        model: str
        size: int = 512
        min_detection_confidence: float = 0.5  # MediaPipe's own
        min_presence_confidence: float = 0.5  # MediaPipe's own

        def __post_init__(self) -> None:
            require_at_least(self, **{"size": 0, self.limit: 1})
            require_between(self, ("min_detection_confidence", "min_presence_confidence"))

    @property
    def weights(self) -> tuple[str, ...]:
        """One task bundle."""
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Build a graph of MediaPipe's for each thread that calls at once, and run it on a photo of a person.

        Raises:
            RuntimeError: MediaPipe refuses the file, or system libraries are missing.
            TimeoutError: MediaPipe hangs; end the process.
        """
        self._net = self.network(
            weights[self.config.model],
            count=getattr(self.config, self.config.limit),
            min_detection=self.config.min_detection_confidence,
            min_presence=self.config.min_presence_confidence,
            copies=placement.in_flight,
        )
