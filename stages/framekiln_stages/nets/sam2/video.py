"""SAM 2.1 or EdgeTAM for video: frame after frame, each object's mask is predicted from its memories.

The network and its session are transformers' own. A session keeps everything. Here everything that no later frame reads
is dropped, so that memory does not grow with the video. The memory attention reads the prompted frames, the memories of
the last `num_maskmem - 1` frames, and the pointers of the last `max_object_pointers_in_encoder - 1`. Memories stay on
the device, since they are small. SAM 2.1 has 0.53 MB per object and frame at any precision, 4 MB per object in all.
EdgeTAM in fp32 has 0.26 MB and 2 MB. One frame's features, 50 to 100 MB, outweigh the memories of eight objects.

Shapes: o objects in the order of their numbers, s side of the network's input (1024); logits o s/4 s/4. Of an
encoded frame: f values in all, a areas and c channels of a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from framekiln.contract import Image, Placement
from framekiln.device import Batches, dtype_of, prepare, ready, torch
from framekiln_stages.nets.checkpoints import load_model
from framekiln_stages.nets.sam2.image import CHANNELS, MODELS, PREPARATION, encoder_config, trim_attention
from framekiln_stages.shared.masks import Mask
from framekiln_stages.shared.point_prompts import Prompt

EDGETAM = "edgetam"
"""Its name in the weights lockfile."""


def is_timm_installed() -> bool:
    """Return True if timm is installed, without importing it."""
    return find_spec("timm") is not None


def check_packages() -> None:
    """Import what its encoder needs: timm, which imports torchvision.

    Raises ImportError: timm is missing, or torchvision was built for another torch.
    """
    if not is_timm_installed():
        raise ImportError("EdgeTAM needs timm: pip install 'framekiln[edgetam]'")
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ImportError(
            f"EdgeTAM needs a torchvision that was built for torch {torch.__version__} ({reason}); install both from "
            "one index."
        ) from error


def edgetam_config(side: int = 1024) -> Any:
    """Return EdgeTAM's published configuration, or that for another input side.

    EdgeTAM (Zhou et al., CVPR 2025) is SAM 2 with timm's RepViT and memories of 512 vectors a frame instead of 4,096.
    The settings come from transformers' `convert_edgetam_video_to_hf.py`; its defaults describe another network. In
    transformers 5.23 one frame cannot have both a mask and a point as prompts.
    """
    from transformers import EdgeTamVideoConfig, EdgeTamVisionConfig, TimmWrapperConfig

    # its own compares with a default that transformers 5.17 asks the Hub for: EdgeTAM would not start without network
    EdgeTamVisionConfig.__repr__ = object.__repr__  # type: ignore[method-assign]
    options = {"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]}
    vision = EdgeTamVisionConfig(
        backbone_config=TimmWrapperConfig(architecture="repvit_m1", model_args=options),
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


MEMORIES = ("maskmem_features", "maskmem_pos_enc")
MASKS = ("pred_masks", "high_res_masks")  # never read after their own frame; 4.3 MB an object


class Tracker:
    """One network on its device, and the session of one video."""

    def __init__(self, model: Any, placement: Placement, frames: int = 1) -> None:
        """Move a model of transformers (float32, CPU) to its placement; compile SAM's encoder if that says so.

        The prompt encoder stays in float32, as for images: in bfloat16 a point would be off by up to 2 px of 1,024.
        `frames`: most frames encoded in one call.
        """
        self._placement, self.dtype = placement, dtype_of(placement)
        with torch.inference_mode():
            positions = model.get_image_wide_positional_embeddings().to(self.dtype).to(placement.device)
        prompts, model.prompt_encoder = ready(model.prompt_encoder, placement, torch.float32), None
        model = ready(model, placement, self.dtype)
        model.prompt_encoder = prompts
        model.prompt_encoder.register_forward_pre_hook(_cast_to_float32, with_kwargs=True)
        model.prompt_encoder.register_forward_hook(lambda _m, _i, output: tuple(part.to(self.dtype) for part in output))
        model.get_image_wide_positional_embeddings = lambda: positions
        self._model, self._preparation = model, replace(PREPARATION, side=model.config.image_size)
        self._positions = list[torch.Tensor]()  # of each level of an encoded frame, a 1 c; known after the first frame
        regions = getattr(model.vision_encoder.backbone, "blocks", ())
        self._encoder = Batches(
            self._encode_flat, replace(placement, compile=placement.compile and bool(regions)), frames, regions=regions
        )
        side = self._preparation.side
        self._encoder.warm_up(torch.zeros(1, 3, side, side, dtype=self.dtype, device=placement.device))
        self.reset()

    def reset(self) -> None:
        from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceSession

        device = self._placement.device
        self._session = Sam2VideoInferenceSession(
            inference_device=device, inference_state_device=device, video_storage_device=device, dtype=self.dtype
        )
        self._next = 0  # number of the next frame, without gaps

    def another(self) -> Tracker:
        """Return a tracker of another video by the same network, which may be used at the same time."""
        other = copy(self)
        other.reset()
        return other

    @property
    def objects(self) -> int:
        return self._session.get_obj_num()

    def add(self, prompt: Prompt | Mask) -> None:
        """Track another object from the next frame on, by a prompt or by a mask (h w of any size)."""
        session, device = self._session, self._placement.device
        number = session.obj_id_to_idx(self.objects)
        if isinstance(prompt, Prompt):
            points = torch.from_numpy(prompt.points * np.float32(self._preparation.side))[None, None]
            labels = torch.from_numpy(prompt.labels)[None, None].int()
            session.add_point_inputs(number, self._next, {"point_coords": points, "point_labels": labels})
        else:
            session.add_mask_inputs(number, self._next, resize_mask(prompt, self._preparation.side, device))
        session.obj_with_new_inputs.append(number)

    def track(self, image: Image) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits of every object's mask in the next frame (h w 3), and of its visibility (o), in float32.

        There must be at least one object. The mask of a hidden object has logits of -1024 only.
        """
        return self.follow(self.encode([image])[0])

    def encode(self, images: Sequence[Image]) -> torch.Tensor:
        """Return the features of frames (h w 3 each), n f; they do not depend on objects or on other frames."""
        with torch.inference_mode():
            return self._encoder(prepare(images, self._preparation, self._placement, self.dtype))

    def follow(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result of `track` for the next frame's features (f)."""
        with torch.inference_mode():
            sides = self._model.backbone_feature_sizes
            areas = [height * width for height, width in sides]
            parts = torch.split(features, [area * width for area, width in zip(areas, CHANNELS, strict=True)])
            levels = [part.view(1, -1, area).permute(2, 0, 1) for part, area in zip(parts, areas, strict=True)]
            known = {"vision_feats": levels, "vision_pos_embeds": self._positions}
            self._session.cache.cache_vision_features(self._next, known)
            output = self._model(self._session, frame=features[:0], frame_idx=self._next)  # its pixels are not read
            self._drop_memories()
            self._next += 1
            return output.pred_masks[:, 0].float(), output.object_score_logits.flatten().float()

    def _encode_flat(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = self._model.get_image_features(pixels, return_dict=True)
        self._positions[:] = [level[:, :1] for level in seen.fpn_position_encoding]
        return torch.cat([level.permute(1, 2, 0).flatten(1) for level in seen.fpn_hidden_states], dim=1)

    def _drop_memories(self) -> None:
        """Drop memories beyond the reach of the next frame's memory attention, and this frame's pixels."""
        session, config, now = self._session, self._model.config, self._next
        session.processed_frames = {}
        memories, pointers = now + 2 - config.num_maskmem, now + 2 - config.max_object_pointers_in_encoder
        for number in range(self.objects):
            kept = session.output_dict_per_obj[number]
            for outputs in (kept["cond_frame_outputs"], kept["non_cond_frame_outputs"]):
                if now in outputs:
                    outputs[now].update(dict.fromkeys(MASKS))
            others = kept["non_cond_frame_outputs"]
            for frame in [frame for frame in others if frame < min(memories, pointers)]:
                del others[frame]
            for frame in (frame for frame in others if frame < memories):
                others[frame].update(dict.fromkeys(MEMORIES))
            session.frames_tracked_per_obj[number].clear()
            session.point_inputs_per_obj[number].clear()
            session.mask_inputs_per_obj[number].clear()


def resize_mask(mask: Mask, side: int, device: str) -> torch.Tensor:
    """Resize a mask (h w) to the network's square, 1 1 s s, as transformers' Sam2VideoProcessor does."""
    whole = torch.from_numpy(np.ascontiguousarray(mask))[None, None].to(device).float()
    return (torch.nn.functional.interpolate(whole, (side, side), mode="bilinear", antialias=True) >= 0.5).float()


def load_video_model(name: str, weights: Path | None) -> Any:
    """Build a model by its name, in float32, with the weights of a file of safetensors or with seeded random ones.

    Raises ValueError: weights are missing from the file, or unexpected; RuntimeError: a weight has another shape.
    """
    from safetensors.torch import load_file

    model_class: Any
    config: Any
    if name == EDGETAM:
        check_packages()  # only here are timm and torchvision imported
        from transformers import EdgeTamVideoModel

        model_class, config = EdgeTamVideoModel, edgetam_config()
    else:
        from transformers import Sam2VideoConfig, Sam2VideoModel

        model_class, config = Sam2VideoModel, Sam2VideoConfig(vision_config=encoder_config(MODELS[name]))
    state, file = (load_file(weights), weights.name) if weights else (None, "")
    model = load_model(model_class, config, state, file=file, model=name)
    if name != EDGETAM:
        trim_attention(model)
    return model


def _cast_to_float32(
    _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Convert the prompt encoder's inputs to float32; labels stay integers."""
    inputs = {
        key: value.float() if value is not None and value.is_floating_point() else value
        for key, value in kwargs.items()
    }
    return args, inputs
