"""EdgeTAM: SAM 2 for video with a small encoder, and memories of 512 vectors a frame instead of 4,096.

Zhou et al., "EdgeTAM: On-Device Track Anything Model", CVPR 2025. The network is transformers' own, its encoder timm's
RepViT; it runs in a session of SAM 2. Transformers' defaults are another network's; the settings here are those of its
converter, `convert_edgetam_video_to_hf.py`. Saved with them, random weights have the size of the published file to the
byte. In transformers 5.23 one frame cannot have both a mask and a point as prompts. Several masks work, and so do
points with boxes.
"""

from importlib.util import find_spec
from typing import Any

EDGETAM = "edgetam"
"""Its name in the weights lockfile."""


def is_timm_installed() -> bool:
    """Return True if timm is installed, without importing it."""
    return find_spec("timm") is not None


def check_packages() -> None:
    """Import what its encoder needs: timm, which imports torchvision.

    Raises:
        ImportError: timm is missing, or torchvision was built for another torch.
    """
    if not is_timm_installed():
        raise ImportError("EdgeTAM needs timm: pip install 'framekiln[edgetam]'")
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:
        import torch

        reason = " ".join(str(error).split())
        raise ImportError(
            f"EdgeTAM needs a torchvision that was built for torch {torch.__version__} ({reason}); install both from "
            "one index."
        ) from error


def edgetam_config(side: int = 1024, encoder: str = "repvit_m1") -> Any:
    """Return the published configuration, for another input side or with another of timm's encoders."""
    from transformers import EdgeTamVideoConfig, EdgeTamVisionConfig, TimmWrapperConfig

    # its own compares with a default, for which transformers 5.17 asks the Hub: EdgeTAM would not start without network
    EdgeTamVisionConfig.__repr__ = object.__repr__  # type: ignore[method-assign]
    options = {"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]}
    vision = EdgeTamVisionConfig(
        backbone_config=TimmWrapperConfig(architecture=encoder, model_args=options),
        backbone_feature_sizes=[[side // by] * 2 for by in (4, 8, 16)],
    )
    return EdgeTamVideoConfig(
        vision_config=vision,
        prompt_encoder_config={"image_size": side},
        image_size=side,
        memory_attention_rope_feat_sizes=[side // 16] * 2,
        enable_temporal_pos_encoding_for_object_pointers=False,
        enable_occlusion_spatial_embedding=False,
    )
