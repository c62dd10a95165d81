"""Base classes of stages that read one pixel column, in the size of their settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from framekiln.contract import Placement, Stage, Weights, pixel_column
from framekiln.contract.limits import Natural, Proportion


class PixelStage(Stage):
    """A stage with a setting `size`: the short side of the pixels, as in frame_512; 0 is full size."""

    thread_safe = True

    @property
    def pixels(self) -> str:
        return pixel_column(self.config.size)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pixels only: results are in fractions of the image's size."""
        return (self.pixels,)


class LandmarkStage(PixelStage):
    """A stage that finds landmarks by one of MediaPipe's networks, image by image."""

    chunk_kinds = ()
    network: ClassVar[Callable[..., Any]]  # a class of `framekiln_stages.nets.mediapipe_tasks`

    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        """The model, the size of its pixels, and the least confidences."""

        limit: ClassVar[str]  # name of a subclass's setting for the most people or faces of one image
        model: str
        size: Natural = 512  # short side of the pixels, as in frame_512; 0: full size
        min_detection_confidence: Proportion = 0.5  # least confidence of a detection; MediaPipe's default
        min_presence_confidence: Proportion = 0.5  # least confidence of landmarks; MediaPipe's default

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.config.model,)

    def setup(self, weights: Weights, placement: Placement) -> None:
        """Build a MediaPipe graph for each concurrent thread, and run it on a photo of a person.

        Raises RuntimeError: MediaPipe refuses the file, or system libraries are missing. Raises TimeoutError: MediaPipe
        hangs; end the process.
        """
        self._net = self.network(
            weights[self.config.model],
            count=getattr(self.config, self.config.limit),
            min_detection=self.config.min_detection_confidence,
            min_presence=self.config.min_presence_confidence,
            copies=placement.in_flight,
        )
