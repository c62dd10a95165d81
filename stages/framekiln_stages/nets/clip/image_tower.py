"""The image tower of CLIP and SigLIP2, with transformers' names of weights and its arithmetic.

transformers takes three CPU seconds to import, and each process of a run would wait for it. So it only computes texts
and draws random weights; images need only torch. The tests compare both towers bit by bit.

Shapes: n images, s side of the input, t tokens (patches, with CLIP's class token first), w width, d dimensions.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from framekiln_stages.nets.clip.architectures import ClipArchitecture

CLIP_EPSILON, SIGLIP_EPSILON = 1e-5, 1e-6  # epsilon of layer norms, by the published configurations


class ImageTower(nn.Module):
    """Images n 3 s s to embeddings n d, not yet of length 1; and the scale of similarities, which has no tower."""

    def __init__(self, architecture: ClipArchitecture) -> None:
        """Build the tower with torch's own random weights."""
        super().__init__()
        self.vision_model = _Vision(architecture)
        if not architecture.siglip:
            self.visual_projection = nn.Linear(architecture.vision[0], architecture.dims, bias=False)
        self.logit_scale = nn.Parameter(torch.zeros([1] if architecture.siglip else []))  # a logarithm
        self.logit_bias = nn.Parameter(torch.zeros(1)) if architecture.siglip else None

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The transformer's equal layers: worth compiling separately."""
        return tuple(self.vision_model.encoder.layers)

    def forward(self, pixels: Tensor) -> Tensor:
        pooled: Tensor = self.vision_model(pixels)
        return self.visual_projection(pooled) if hasattr(self, "visual_projection") else pooled


def load_image_tower(architecture: ClipArchitecture, state: Mapping[str, Tensor], file: str) -> ImageTower:
    """Return the image tower with weights from those of the whole model, in float32 for inference.

    Raises ValueError: weights are missing; the message has the first three names. Raises RuntimeError: a weight has
    another shape.
    """
    with torch.device("meta"):
        tower = ImageTower(architecture)
    names = tower.state_dict().keys()
    if missing := sorted(names - state.keys()):
        raise ValueError(f"{file} is not this model: missing weights {missing[:3]}")
    tower.load_state_dict({name: state[name].float() for name in names}, assign=True)
    return tower.eval().requires_grad_(False)


class _Vision(nn.Module):
    def __init__(self, architecture: ClipArchitecture) -> None:
        super().__init__()
        width, _, layers, _ = architecture.vision
        epsilon = SIGLIP_EPSILON if architecture.siglip else CLIP_EPSILON
        self.embeddings = _Embeddings(architecture)
        if not architecture.siglip:
            self.pre_layrnorm = nn.LayerNorm(width, epsilon)  # the files have this spelling
        self.encoder = _Encoder(_Layer(architecture, epsilon) for _ in range(layers))
        self.post_layernorm = nn.LayerNorm(width, epsilon)
        self.head = _Pooling(architecture, epsilon) if architecture.siglip else None

    def forward(self, pixels: Tensor) -> Tensor:
        tokens = self.embeddings(pixels)
        if self.head is None:
            tokens = self.pre_layrnorm(tokens)
        tokens = self.encoder(tokens)
        pooled: Tensor = self.post_layernorm(tokens[:, 0] if self.head is None else tokens)
        return pooled if self.head is None else self.head(pooled)


class _Embeddings(nn.Module):
    """Patches with their positions, and CLIP's class token before them: n t w."""

    def __init__(self, architecture: ClipArchitecture) -> None:
        super().__init__()
        width, patch = architecture.vision[0], architecture.patch
        patches = (architecture.preparation.side // patch) ** 2
        self.patch_embedding = nn.Conv2d(3, width, patch, patch, bias=architecture.siglip)
        self.position_embedding = nn.Embedding(patches + (not architecture.siglip), width)
        if not architecture.siglip:
            self.class_embedding = nn.Parameter(torch.zeros(width))

    def forward(self, pixels: Tensor) -> Tensor:
        tokens: Tensor = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        if hasattr(self, "class_embedding"):
            tokens = torch.cat([self.class_embedding.expand(len(tokens), 1, -1), tokens], dim=1)
        return tokens + self.position_embedding.weight


class _Encoder(nn.Module):
    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, tokens: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens


class _Layer(nn.Module):
    def __init__(self, architecture: ClipArchitecture, epsilon: float) -> None:
        super().__init__()
        width, _, _, heads = architecture.vision
        self.layer_norm1, self.self_attn = nn.LayerNorm(width, epsilon), _Attention(width, heads)
        self.layer_norm2, self.mlp = nn.LayerNorm(width, epsilon), _Perceptron(architecture)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.self_attn(self.layer_norm1(tokens))
        return tokens + self.mlp(self.layer_norm2(tokens))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        projections = (self.q_proj, self.k_proj, self.v_proj)
        query, key, value = (layer(tokens).unflatten(-1, (self._heads, -1)).transpose(1, 2) for layer in projections)
        mixed = scaled_dot_product_attention(query, key, value)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class _Perceptron(nn.Module):
    def __init__(self, architecture: ClipArchitecture) -> None:
        super().__init__()
        width, hidden, _, _ = architecture.vision
        self._siglip = architecture.siglip
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.fc1(tokens)
        # SigLIP2: GELU by tanh; OpenAI's CLIP: by a sigmoid
        hidden = gelu(hidden, approximate="tanh") if self._siglip else hidden * torch.sigmoid(1.702 * hidden)
        return self.fc2(hidden)


class _Pooling(nn.Module):
    """SigLIP2's pooling: a learned query attends to all tokens."""

    def __init__(self, architecture: ClipArchitecture, epsilon: float) -> None:
        super().__init__()
        width, _, _, heads = architecture.vision
        self.probe = nn.Parameter(torch.zeros(1, 1, width))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.layernorm, self.mlp = nn.LayerNorm(width, epsilon), _Perceptron(architecture)

    def forward(self, tokens: Tensor) -> Tensor:
        probe = self.probe.repeat(len(tokens), 1, 1)
        pooled: Tensor = self.attention(probe, tokens, tokens)[0]
        return (pooled + self.mlp(self.layernorm(pooled)))[:, 0]
