"""Small SAM 2.1 and EdgeTAM for video: as published, except for SAM's encoder and the side, 256 px."""

from __future__ import annotations

import sys
from typing import Any

import torch

from framekiln_stages.nets.sam2.image import encoder_config
from framekiln_stages.nets.sam2.video import edgetam_config
from tests.support.stages.sam.weights import TOY

SIDE = 256


def model() -> Any:
    """Return SAM 2.1 with a small encoder."""
    from transformers import Sam2VideoConfig, Sam2VideoModel

    seen = encoder_config(TOY)
    seen.backbone_config.image_size = [SIDE, SIDE]
    seen.backbone_feature_sizes = [[SIDE // by] * 2 for by in (4, 8, 16)]
    config = Sam2VideoConfig(
        vision_config=seen,
        prompt_encoder_config={"image_size": SIDE},
        image_size=SIDE,
        memory_attention_rope_feat_sizes=[SIDE // 16] * 2,
    )
    return lively(Sam2VideoModel, config)


def edgetam() -> Any:
    """Return EdgeTAM as published, except for the side; all objects are visible, as logits are -1024 otherwise."""
    from transformers import EdgeTamVideoModel

    made = lively(EdgeTamVideoModel, edgetam_config(SIDE))
    with torch.no_grad():
        made.mask_decoder.pred_obj_score_head.proj_out.bias.fill_(20)
    return made


def lively(kind: Any, config: Any) -> Any:
    """Return a network with random weights that keep the scale of activations."""
    torch.manual_seed(0)
    made = kind(config).eval()
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if "token." in name or "tokens." in name or "point_embed." in name or "temporal" in name:
                tensor.normal_()
            elif name.startswith("no_") or name.startswith("occlusion"):
                tensor.normal_(0, 0.1)
            elif tensor.dim() > 1 and "embed" not in name:
                tensor.normal_(0, 1.2 / (tensor.shape[0] if "upscale_conv" in name else tensor[0].numel()) ** 0.5)
    return made


def plain(network: Any, pixels: torch.Tensor, inputs: list[tuple[int, str, Any]]) -> list[tuple[Any, Any]]:
    """Return logits (o 1 h w) and object logits of each frame, by transformers' own session over the whole video.

    Args:
        network: in float32, on the CPU.
        pixels: n 3 s s, prepared.
        inputs: of each object its first frame, "points" with coordinates in px and labels, or "mask".
    """
    own = sys.modules[type(network).__module__]
    kind = getattr(own, type(network).__name__.replace("Model", "InferenceSession"))
    session = kind(video=pixels, dtype=torch.float32)
    for number, (frame, kind, value) in enumerate(inputs):
        session.obj_id_to_idx(number)
        if kind == "points":
            session.add_point_inputs(number, frame, {"point_coords": value[0], "point_labels": value[1]})
        else:
            session.add_mask_inputs(number, frame, value)
        session.obj_with_new_inputs.append(number)
    outs = network.propagate_in_video_iterator(session, start_frame_idx=0)
    return [(out.pred_masks, out.object_score_logits) for out in outs]
