"""Architectures of CLIP and SigLIP2, so that no configuration has to be downloaded with the weights."""

from dataclasses import dataclass

from framekiln.contract import GpuMemory
from framekiln.device import Preparation

# openai/CLIP, clip/clip.py `_transform`
OPENAI = Preparation(
    side=224, mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711), crop=True
)
# google-research/big_vision, pp/ops_image.py: resize to a square, bilinear and antialiased, then -1 to 1
SIGLIP = Preparation(side=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), method="bilinear", crop=False)


@dataclass(frozen=True, kw_only=True)
class ClipArchitecture:
    """Sizes of a model, which are not in the files; of a tower: width, hidden width, layers, heads."""

    dims: int  # numbers of an embedding
    text: tuple[int, int, int, int]
    vision: tuple[int, int, int, int]
    patch: int  # px
    siglip: bool = False
    tokenizer: str = "clip-bpe"  # its name in the weights lockfile

    def memory(self, rows: int) -> GpuMemory:
        """Return the image tower's memory, in a call with this many rows.

        A layer's perceptron holds most of a call at a time: 16 widths a token, 12 without CLIP's GELU.
        """
        (width, hidden, layers, _), side = self.vision, self.preparation.side
        tokens = (side // self.patch) ** 2 + (not self.siglip)
        block, ends = 2 * width * (2 * width + hidden), 3 * self.patch**2 + tokens + (0 if self.siglip else self.dims)
        weights = (layers + self.siglip) * block + ends * width
        row = (12 if self.siglip else 16) * tokens * width + 3 * side**2
        return GpuMemory(weights_gb=2e-9 * weights, call_gb=2e-9 * rows * row)

    @property
    def preparation(self) -> Preparation:
        return SIGLIP if self.siglip else OPENAI


_BASE = (768, 3072, 12, 12)
_B32 = ClipArchitecture(dims=512, text=(512, 2048, 12, 8), vision=_BASE, patch=32)
MODELS = {
    "clip-vit-b32": _B32,
    "clip-vit-b32-bin": _B32,  # the same weights in the older form
    "clip-vit-l14": ClipArchitecture(dims=768, text=_BASE, vision=(1024, 4096, 24, 16), patch=14),
    "siglip2-base": ClipArchitecture(
        dims=768, text=_BASE, vision=_BASE, patch=16, siglip=True, tokenizer="siglip2-tokenizer"
    ),
}
"""Architectures by the weights' name in the lockfile. ImageNet zero-shot: B/32 63.3%, L/14 75.5% (open_clip,
docs/openclip_results.csv)."""
