"""SAM 2.1, or EdgeTAM, along a video: a frame after the other, each object's mask from what is remembered of it.

The network and its session are transformers' own. A session keeps everything; here what no later frame reads is
dropped, so that memory does not grow with the video. The memory attention reads the frames with prompts, the memories
of the last `num_maskmem - 1` frames, and the pointers of the last `max_object_pointers_in_encoder - 1`. That is little,
so memories stay on the device: .53 MB an object and frame of SAM 2.1 at any precision, 4 MB an object in all; .26 MB
and 2 MB of EdgeTAM in fp32. What a look at one frame holds, 50 to 100 MB, is more than eight objects' memories.

Shapes: o objects in the order of their numbers, s side of what the network looks at (1024); logits o s/4 s/4.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.columns import Image
from pipeline.device import dtype_of, prepare, ready, seeded
from pipeline.stage import Placement
from stages.nets.edgetam import EDGETAM, configuration
from stages.nets.masks import Mask
from stages.nets.prompts import Prompt
from stages.nets.sam2 import MODELS, PREPARATION, vision

if TYPE_CHECKING:
    import torch

HEAVY = ("maskmem_features", "maskmem_pos_enc")
ONCE = ("pred_masks", "high_res_masks")  # of no use after their own frame; 4.3 MB an object


class Tracker:
    """One network on its device, for one video at a time."""

    def __init__(self, model: Any, placement: Placement) -> None:
        """Take a model of transformers, in float32 and on the CPU.

        Positions of prompts stay in float32, as for pictures: in bfloat16 a point would be off by up to 2 px of 1,024.
        """
        import torch

        self._placement, self.dtype = placement, dtype_of(placement)
        with torch.inference_mode():
            positions = model.get_image_wide_positional_embeddings().to(self.dtype).to(placement.device)
        prompts, model.prompt_encoder = ready(model.prompt_encoder, placement, torch.float32), None
        model = ready(model, placement, self.dtype)
        model.prompt_encoder = prompts
        model.prompt_encoder.register_forward_pre_hook(_in_float32, with_kwargs=True)
        model.prompt_encoder.register_forward_hook(lambda _m, _i, made: tuple(one.to(self.dtype) for one in made))
        model.get_image_wide_positional_embeddings = lambda: positions
        self._model, self._how = model, replace(PREPARATION, side=model.config.image_size)
        self.begin()

    def begin(self) -> None:
        """Forget the video before."""
        from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceSession

        device = self._placement.device
        self._session = Sam2VideoInferenceSession(
            inference_device=device, inference_state_device=device, video_storage_device=device, dtype=self.dtype
        )
        self._next = 0  # number of the next frame, without gaps

    @property
    def objects(self) -> int:
        """How many are followed."""
        return self._session.get_obj_num()

    def add(self, prompt: Prompt | Mask) -> None:
        """Follow another object from the next frame on: a prompt's, or one by its mask (h w of any size)."""
        import torch

        session, device = self._session, self._placement.device
        number = session.obj_id_to_idx(self.objects)
        if isinstance(prompt, Prompt):
            points = torch.from_numpy(prompt.points * np.float32(self._how.side))[None, None]
            labels = torch.from_numpy(prompt.labels)[None, None].int()
            session.add_point_inputs(number, self._next, {"point_coords": points, "point_labels": labels})
        else:
            session.add_mask_inputs(number, self._next, squared(prompt, self._how.side, device))
        session.obj_with_new_inputs.append(number)

    def look(self, image: Image) -> tuple[torch.Tensor, torch.Tensor]:
        """The next frame (h w 3): logits of every object's mask, and the logit of its being there (o), in float32.

        There must be an object. Where one is not there its logits are all -1024.
        """
        import torch

        with torch.inference_mode():
            pixels = prepare([image], self._how, self._placement, self.dtype)
            made = self._model(self._session, frame=pixels[0], frame_idx=self._next)
            self._forget()
            self._next += 1
            return made.pred_masks[:, 0].float(), made.object_score_logits.flatten().float()

    def _forget(self) -> None:
        """Drop what the next frame's memory attention does not reach, and this frame's pixels."""
        session, config, now = self._session, self._model.config, self._next
        session.processed_frames = {}
        memories, pointers = now + 2 - config.num_maskmem, now + 2 - config.max_object_pointers_in_encoder
        for number in range(self.objects):
            kept = session.output_dict_per_obj[number]
            for outputs in (kept["cond_frame_outputs"], kept["non_cond_frame_outputs"]):
                if now in outputs:
                    outputs[now].update(dict.fromkeys(ONCE))
            others = kept["non_cond_frame_outputs"]
            for frame in [frame for frame in others if frame < min(memories, pointers)]:
                del others[frame]
            for frame in (frame for frame in others if frame < memories):
                others[frame].update(dict.fromkeys(HEAVY))
            session.frames_tracked_per_obj[number].clear()
            session.point_inputs_per_obj[number].clear()
            session.mask_inputs_per_obj[number].clear()


def squared(mask: Mask, side: int, device: str) -> torch.Tensor:
    """A mask (h w) on the network's square, 1 1 s s, as transformers' Sam2VideoProcessor scales one."""
    import torch
    from torch.nn.functional import interpolate

    whole = torch.from_numpy(np.ascontiguousarray(mask))[None, None].to(device).float()
    return (interpolate(whole, (side, side), mode="bilinear", antialias=True) >= 0.5).float()


def built(name: str, weights: Path | None) -> Any:
    """A model by its name, with the weights of a file of safetensors, in float32, or with seeded random ones.

    Raises:
        ValueError: the file lacks weights, or holds some that the model does not have.
        RuntimeError: a weight has another shape.
    """
    import torch
    from safetensors.torch import load_file
    from transformers import EdgeTamVideoModel, Sam2VideoConfig, Sam2VideoModel
    from transformers.utils import logging

    kind: Any = EdgeTamVideoModel if name == EDGETAM else Sam2VideoModel
    config = configuration() if name == EDGETAM else Sam2VideoConfig(vision_config=vision(MODELS[name]))
    if weights is None:
        with seeded():
            return kind(config)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model, report = kind.from_pretrained(
        None, config=config, state_dict=load_file(weights), dtype=torch.float32, output_loading_info=True
    )
    for problem, trouble in (("missing_keys", "lacks"), ("unexpected_keys", f"holds, as no {name} does,")):
        if report[problem]:
            raise ValueError(f"{weights.name} {trouble} {', '.join(sorted(report[problem])[:3])}")
    return model


def _in_float32(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs of the prompt encoder as its weights are; labels stay whole numbers."""
    floats = {key: one.float() if one is not None and one.is_floating_point() else one for key, one in kwargs.items()}
    return args, floats
