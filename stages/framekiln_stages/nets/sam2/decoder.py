"""SAM 2.1's mask decoder for many prompts on a few images, without copying an image's features for each prompt.

The modules are transformers' own, `Sam2MaskDecoder` and `Sam2PromptEncoder`; only the order of the work differs. There,
image tokens, their positions and both high-resolution maps are repeated for each prompt: 10 MB in bfloat16. Here they
are broadcast, and the first layer's queries, keys and values of the image are computed once for all its prompts.

Shapes: n images, p prompts of an image, k points of a prompt, t tokens of a prompt, a areas of the coarse grid,
c channels, m masks of a prompt, s side of the fine grid.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class SharedDecoder(nn.Module):
    """Prompt encoder and mask decoder in one function of tensors with a common first axis, the images.

    Args:
        prompts: `Sam2PromptEncoder`, in float32.
        decoder: `Sam2MaskDecoder`.
        positions: of the coarse grid's areas, 1 c H W, of the decoder's dtype.
        side: of the model's input, px.
    """

    positions: Tensor  # 1 1 a c

    def __init__(self, prompts: Any, decoder: Any, positions: Tensor, side: int) -> None:
        super().__init__()
        self.prompts, self.decoder, self.side = prompts, decoder, side
        self.register_buffer("positions", _flatten_areas(positions)[:, None])

    def forward(
        self, fine: Tensor, middle: Tensor, coarse: Tensor, points: Tensor, labels: Tensor, *, several: bool
    ) -> tuple[Tensor, Tensor]:
        """Decode prompts.

        Args:
            fine: n 32 s s.
            middle: n 64 s/2 s/2.
            coarse: n c s/4 s/4.
            points: n p k 2 float32, shares of width and height.
            labels: n p k int64.
            several: three masks a prompt; else one.

        Returns:
            Logits n p m s s and predicted IoUs n p m, of the decoder's dtype.
        """
        sparse = self.prompts._embed_points(points * self.side, labels, pad=True)  # n p k+1 c
        empty = self.prompts.no_mask_embed.weight.to(coarse.dtype).view(1, -1, 1, 1)
        decoder = self.decoder
        own = torch.cat([part.weight for part in (decoder.obj_score_token, decoder.iou_token, decoder.mask_tokens)])
        tokens = torch.cat([own.expand(*sparse.shape[:2], *own.shape), sparse.to(own.dtype)], dim=2)
        queries, keys = self._attend(tokens, _flatten_areas(coarse + empty)[:, None])
        heads = decoder.num_mask_tokens
        masks = self._make_masks(queries[:, :, 2 : 2 + heads], keys, fine, middle, first=int(several))
        iou = decoder.iou_prediction_head(queries[:, :, 1])
        if several:
            return masks, iou[:, :, 1:]
        if decoder.dynamic_multimask_via_stability:
            chosen, best = decoder._dynamic_multimask_via_stability(masks, iou)
            return chosen, best
        return masks[:, :, :1], iou[:, :, :1]

    def _attend(self, tokens: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens n p t c and the image for each prompt, n p a c; image: n 1 a c."""
        transformer = self.decoder.transformer
        queries, keys = tokens, image
        for layer in transformer.layers:
            is_first = layer.skip_first_layer_pe  # its tokens carry no positions, and are replaced
            placed = queries if is_first else queries + tokens
            found = _run_attention(layer.self_attn, placed, placed, queries)
            queries = layer.layer_norm1(found if is_first else queries + found)
            placed = keys + self.positions
            found = _run_attention(layer.cross_attn_token_to_image, queries + tokens, placed, keys)
            queries = layer.layer_norm2(queries + found)
            queries = layer.layer_norm3(queries + layer.mlp(queries))
            found = _run_attention(layer.cross_attn_image_to_token, placed, queries + tokens, queries)
            keys = layer.layer_norm4(keys + found)
        last = transformer.final_attn_token_to_image
        found = _run_attention(last, queries + tokens, keys + self.positions, keys)
        return transformer.layer_norm_final_attn(queries + found), keys

    def _make_masks(self, tokens: Tensor, keys: Tensor, fine: Tensor, middle: Tensor, *, first: int) -> Tensor:
        """Return logits n p m s s of the mask tokens (n p 4 c) from the given number on."""
        decoder, (images, prompts) = self.decoder, keys.shape[:2]
        grid = keys.transpose(2, 3).reshape(images * prompts, -1, *(side // 2 for side in middle.shape[2:]))
        grid = decoder.upscale_conv1(grid)
        grid.view(images, prompts, *middle.shape[1:]).add_(middle[:, None])
        grid = decoder.upscale_conv2(decoder.activation(decoder.upscale_layer_norm(grid)))
        grid.view(images, prompts, *fine.shape[1:]).add_(fine[:, None])
        grid = decoder.activation(grid).view(images, prompts, fine.shape[1], -1)
        heads = list(decoder.output_hypernetworks_mlps)[first:]
        weights = torch.stack([head(tokens[:, :, first + i]) for i, head in enumerate(heads)], dim=2)
        return (weights @ grid).view(images, prompts, -1, *fine.shape[2:])


def _run_attention(module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the attention of `Sam2Attention`, n p l c, of inputs n p or 1 ... c (1: the same for all prompts)."""
    query, key, value = module.q_proj(query), module.k_proj(key), module.v_proj(value)
    images, prompts, length = len(query), max(query.shape[1], key.shape[1]), query.shape[2]
    if key.shape[1] == 1 and prompts > 1:  # the image's keys: the tokens of all prompts form one sequence of queries
        query = query.flatten(1, 2)[:, None]
    elif query.shape[1] < prompts:
        query = query.expand(-1, prompts, -1, -1)  # a view if there is one image
    heads = (module.num_attention_heads, module.head_dim)
    query, key, value = (
        part.flatten(0, 1).view(-1, part.shape[2], *heads).transpose(1, 2) for part in (query, key, value)
    )
    found = scaled_dot_product_attention(query, key, value, scale=module.scaling)
    return module.o_proj(found.transpose(1, 2).reshape(images, prompts, length, -1))


def _flatten_areas(grid: Tensor) -> Tensor:
    """Return n a c for a grid n c H W."""
    return grid.flatten(2).transpose(1, 2)
