"""The settings of mask generation. "amg" is sam2/automatic_mask_generator.py of Meta's sam2."""

from dataclasses import dataclass

from framekiln.contract import Stage
from framekiln_stages.shared.settings import require_at_least, require_between

FAST_POINTS = 16  # points a side with `fast`: a quarter of the prompts
FRACTIONS = ("pred_iou_thresh", "stability_score_thresh", "box_nms_thresh", "crop_nms_thresh", "crop_overlap_ratio")


@dataclass(frozen=True, kw_only=True)
class Rules(Stage.Config):
    """Prompts of the grid, and thresholds for their masks. Raises ValueError: a number is out of range."""

    multimask_output: bool = True  # three masks a prompt, as amg, since a point is ambiguous. False: one
    points_per_side: int = 32  # amg
    # Grid only: least IoU predicted for a mask, as SAM 2's amg; SAM 1's has 0.88. 0: any
    pred_iou_thresh: float = 0.8
    stability_score_thresh: float = 0.95  # amg. 0: any
    stability_score_offset: float = 1.0  # amg; Meta's example for more masks has 0.7
    mask_threshold: float = 0.0  # amg; of logits
    box_nms_thresh: float = 0.7  # amg; IoU of boxes above which one is a duplicate
    crop_n_layers: int = 0  # amg; 1 adds 4 crops, 2 adds 16 more
    crop_nms_thresh: float = 0.7  # amg; between crops, where the mask of the smaller crop is kept
    crop_overlap_ratio: float = 512 / 1500  # amg
    crop_n_points_downscale_factor: int = 1  # amg; each layer divides the points a side by it
    min_mask_region_area: int = 0  # amg; px of the mask: smaller holes are filled, smaller islands dropped
    max_masks: int | None = None  # grid only: the best masks of a frame; None: all
    fast: bool = False  # points_per_side at most 16, and mask_size low

    def __post_init__(self) -> None:
        require_at_least(self, points_per_side=1, crop_n_points_downscale_factor=1, max_masks=1)
        require_at_least(self, stability_score_offset=0, crop_n_layers=0, min_mask_region_area=0)
        require_between(self, FRACTIONS)

    def grid_side(self, layer: int) -> int:
        """Return the points a side of the grid over the frame (layer 0) or over a crop."""
        side = min(self.points_per_side, FAST_POINTS) if self.fast else self.points_per_side
        return max(1, int(side / self.crop_n_points_downscale_factor**layer))
