"""Two towers that put pictures and sentences into one space: CLIP and SigLIP2, built in code, filled from one file.

The networks are transformers' own; architectures stand here, so that no configuration has to be downloaded with the
weights. Shapes: n pictures, m texts, k categories, d dimensions; embeddings have length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.device import Batches, Preparation, ready, seeded
from pipeline.stage import Placement
from stages.nets.clip_text import LONGEST, clip_tokenizer, encode, stand_in, tokens

if TYPE_CHECKING:
    import torch

Encode = Callable[[Sequence[str]], list[list[int]]]

TEXTS = 64  # read at once: bounds memory where there are a thousand categories
SIGLIP_TOKENS = 64  # SigLIP2 was trained on texts of exactly so many tokens, filled up with 0 on the right

# openai/CLIP, clip/clip.py `_transform`
OPENAI = Preparation(
    side=224, mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711), crop=True
)
# google-research/big_vision, pp/ops_image.py: resize to a square, bilinear and antialiased, then -1 to 1
SIGLIP = Preparation(side=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), method="bilinear", crop=False)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What the files do not say of a model; sizes of a tower: width, width between, layers, heads."""

    dims: int  # of an embedding
    text: tuple[int, int, int, int]
    vision: tuple[int, int, int, int]
    patch: int  # px
    siglip: bool = False
    tokenizer: str = "clip-bpe"  # its name in the weights lockfile

    @property
    def preparation(self) -> Preparation:
        """What is done to pictures."""
        return SIGLIP if self.siglip else OPENAI


_BASE = (768, 3072, 12, 12)
_B32 = Architecture(dims=512, text=(512, 2048, 12, 8), vision=_BASE, patch=32)
MODELS = {
    "clip-vit-b32": _B32,
    "clip-vit-b32-bin": _B32,  # the same weights in the older form
    "clip-vit-l14": Architecture(dims=768, text=_BASE, vision=(1024, 4096, 24, 16), patch=14),
    "siglip2-base": Architecture(
        dims=768, text=_BASE, vision=_BASE, patch=16, siglip=True, tokenizer="siglip2-tokenizer"
    ),
}
"""By the weights' name in the lockfile. ImageNet zero-shot: B/32 63.3%, L/14 75.5% (open_clip,
docs/openclip_results.csv)."""


class TwoTowers:
    """A model with its weights, on the CPU until it is used.

    Texts are read in fp32, once; `keep_vision` then lets the text tower go and settles how pictures are computed. The
    device never holds both towers, so that the set-up takes no more of its memory than a small batch does.
    """

    def __init__(self, architecture: Architecture, weights: Path | None, tokenizer: Path | None, device: str) -> None:
        """Build the model.

        Args:
            architecture: which.
            weights: its file; None for seeded random weights.
            tokenizer: its file; None for a stand-in that knows no language.
            device: where both towers compute.

        Raises:
            ValueError: weights are missing from the file, or the tokenizer's file is none.
            RuntimeError: a weight has another shape.
        """
        self._siglip, self._device = architecture.siglip, device
        self._encode = _encoder(architecture, tokenizer)
        if weights is None:
            self._model = random_model(architecture)
        else:
            self._model = build(architecture, read_state(weights))
        self._scale = float(self._model.logit_scale.exp())
        self._bias = float(self._model.logit_bias) if architecture.siglip else 0.0

    def texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embeddings of texts: m d float32.

        Raises:
            ValueError: a text is longer than the model can read.
        """
        import torch

        ids = torch.tensor(self._encode(texts), device=self._device)
        self._model.text_model.to(self._device)
        if not self._siglip:
            self._model.text_projection.to(self._device)
        with torch.inference_mode():
            parts = [self._model.get_text_features(input_ids=part).pooler_output for part in torch.split(ids, TEXTS)]
            return _unit(torch.cat(parts))

    def keep_vision(self, placement: Placement, dtype: torch.dtype, *, int8: bool = False) -> None:
        """Free the text tower, and make the other ready for `images`.

        Args:
            placement: its device, `compile` and `batch_rows`.
            dtype: of the weights and activations.
            int8: multiply the linear layers' inputs and weights as 8-bit numbers.
        """
        from stages.nets.int8 import counterparts

        self._model.text_model = None
        vision = self._model.vision_model
        swaps = counterparts(vision) if int8 else {}
        self._model = ready(self._model, placement, dtype)
        for name, layer in swaps.items():
            vision.set_submodule(name, layer.to(placement.device))
        self._images = Batches(self._features, placement)

    def images(self, pixels: torch.Tensor) -> torch.Tensor:
        """Embeddings of at least one prepared picture (n 3 s s, of the model's dtype): n d float32."""
        import torch

        with torch.inference_mode():
            return _unit(self._images(pixels))

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._model.get_image_features(pixel_values=pixels).pooler_output
        return found

    def probabilities(self, images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Of each category for each picture: n k float32, from embeddings n d and k d.

        CLIP's add up to 1 over all categories (softmax); SigLIP's are each by itself (sigmoid).
        """
        logits = self._scale * images @ texts.T + self._bias
        return logits.sigmoid() if self._siglip else logits.softmax(dim=1)


def configured(architecture: Architecture) -> tuple[Any, Any]:
    """The class of transformers and its configuration."""
    from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

    text, vision = _tower(architecture.text), _tower(architecture.vision) | {"patch_size": architecture.patch}
    if architecture.siglip:
        text |= {"vocab_size": 256000, "projection_size": architecture.dims}
        return SiglipModel, SiglipConfig(text_config=text, vision_config=vision)
    return CLIPModel, CLIPConfig(text_config=text, vision_config=vision, projection_dim=architecture.dims)


def build(architecture: Architecture, state: dict[str, torch.Tensor]) -> Any:
    """The model of transformers with these weights, in fp32 and ready to use.

    Raises:
        ValueError: weights are missing.
        RuntimeError: a weight has another shape.
    """
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model, config = configured(architecture)
    loaded, report = model.from_pretrained(
        None,
        config=config,
        state_dict={name: tensor for name, tensor in state.items() if not name.endswith("position_ids")},
        dtype=torch.float32,
        attn_implementation="sdpa",
        output_loading_info=True,
    )
    if report["missing_keys"]:
        raise ValueError(f"the weights lack {', '.join(sorted(report['missing_keys'])[:3])}")
    return loaded.eval().requires_grad_(False)


def random_model(architecture: Architecture) -> Any:
    """The whole model in fp32 with random weights, the same each time."""
    kind, config = configured(architecture)
    with seeded():
        return kind(config).eval().requires_grad_(False)


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file of safetensors or, without running anything that it says, of a pickle."""
    import torch
    from safetensors.torch import load_file

    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{":  # after eight bytes for its length, a header in JSON: the format's specification
        return load_file(path)
    state: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _encoder(architecture: Architecture, path: Path | None) -> Encode:
    if path is None:
        return lambda texts: stand_in(texts, length=SIGLIP_TOKENS if architecture.siglip else LONGEST)
    return siglip_encoder(path) if architecture.siglip else clip_encoder(path)


def clip_encoder(path: Path) -> Encode:
    """Texts to tokens for CLIP."""
    tokenizer = clip_tokenizer(path)
    return lambda texts: encode(tokenizer, texts)


def siglip_encoder(path: Path) -> Encode:
    """Texts to tokens for SigLIP2: in lower case, filled up to the length it was trained on."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.enable_padding(direction="right", length=SIGLIP_TOKENS, pad_id=0)
    return lambda texts: tokens(tokenizer, [text.lower() for text in texts], most=SIGLIP_TOKENS)


def _tower(sizes: tuple[int, int, int, int]) -> dict[str, int]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return dict(zip(names, sizes, strict=True))


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import normalize

    return normalize(vectors.float(), dim=-1)
