"""CLIP and SigLIP2: an image tower and a text tower with one embedding space.

The text tower and random weights are transformers' own; the image tower has the same weights and results without it.

CLIP's tokenizer is built from the vocabulary in OpenAI's own repository, so that no other file is needed.
`bpe_simple_vocab_16e6.txt.gz` lists merges of a byte-pair encoding, most frequent first; CLIP uses 48,894 of them. The
vocabulary follows from them: 256 bytes, the same at the end of a word, each merge, start and end (openai/CLIP,
clip/simple_tokenizer.py). Written out, merges and vocabulary equal Hugging Face's published files byte for byte.

Shapes: n images, m texts, k categories, d dimensions, s side of the input; embeddings have length 1.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch.nn.functional import normalize

from framekiln.contract import Placement
from framekiln.device import Batches, ready
from framekiln_stages.nets.checkpoints import load_model, read_state
from framekiln_stages.nets.clip.architectures import ClipArchitecture

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from framekiln_stages.nets.clip.image_tower import ImageTower

START, END = "<|startoftext|>", "<|endoftext|>"
WORD_END = "</w>"
MAX_TOKENS = 77  # CLIP's positions, start and end included
MERGES = 49152 - 256 - 2  # clip/simple_tokenizer.py: `merges[1:49152-256-2+1]`

_VOCABULARY = 49408  # tokens; the last two are start and end


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Return the merges that CLIP uses, in their order. Raises ValueError: the file has fewer merges."""
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")[1 : MERGES + 1]
    pairs = [(first, second) for first, space, second in (line.partition(" ") for line in lines) if space]
    if len(pairs) != MERGES:
        raise ValueError(f"{path} holds {len(pairs)} merges where CLIP needs {MERGES}")
    return pairs


def vocabulary(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the 49,408 tokens with their numbers."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())  # one printable character for each byte, in the order of the vocabulary
    words = (first + second for first, second in merges)
    tokens = [*letters, *(letter + WORD_END for letter in letters), *words, START, END]
    return {token: number for number, token in enumerate(tokens)}


def clip_tokenizer(path: Path) -> Tokenizer:
    """Build CLIP's tokenizer, which neither truncates nor pads. `path`: bpe_simple_vocab_16e6.txt.gz."""
    from transformers import CLIPTokenizer

    merges = read_merges(path)
    return CLIPTokenizer(vocab=vocabulary(merges), merges=merges).backend_tokenizer  # type: ignore[arg-type]


def padded_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token numbers of each text between start and end, padded to one length with the end.

    CLIP's text tower is causal and is read at the first end token, so padding changes nothing.
    Raises ValueError: a text is longer than CLIP's input.
    """
    numbers = token_numbers(tokenizer, texts, max_tokens=MAX_TOKENS)
    longest = max(map(len, numbers), default=0)
    return [ids + ids[-1:] * (longest - len(ids)) for ids in numbers]


def dummy_tokens(texts: Sequence[str], *, length: int) -> list[list[int]]:
    """Return hashes as tokens, for models with random weights: different texts get different numbers.

    Each word has its CRC-32, reduced below CLIP's `START`. CLIP's `END` pads to the length.
    Raises ValueError: a text has more words than fit.
    """
    words = [[zlib.crc32(word.encode()) % (_VOCABULARY - 2) for word in text.lower().split()] for text in texts]
    for text, ids in zip(texts, words, strict=True):
        if len(ids) >= length:
            raise ValueError(f"{text!r} has {len(ids)} words, but the model reads {length} tokens: shorten it")
    return [ids + [_VOCABULARY - 1] * (length - len(ids)) for ids in words]


def token_numbers(tokenizer: Tokenizer, texts: Sequence[str], *, max_tokens: int) -> list[list[int]]:
    """Return the token numbers of each text. Raises ValueError: a text has more than `max_tokens`."""
    encoded = [item.ids for item in tokenizer.encode_batch(list(texts))]
    for text, ids in zip(texts, encoded, strict=True):
        if len(ids) > max_tokens:
            raise ValueError(f"{text!r} has {len(ids)} tokens, but the model reads {max_tokens}: shorten it")
    return encoded


Tokenize = Callable[[Sequence[str]], list[list[int]]]

TEXTS_PER_BATCH = 64  # bounds memory with a thousand categories
_TOWERS = WeakValueDictionary[tuple[object, ...], "ImageTower"]()  # towers of this process, by weights and placement
SIGLIP_TOKENS = 64  # SigLIP2 was trained on texts of exactly this length, padded with 0 on the right


class TwoTowers:
    """A model with its weights, on the CPU until it is used.

    Texts are embedded once, in fp32; without texts the text tower is never built. `keep_vision` frees it, and sets how
    images are computed. The device never holds both towers, so set-up needs no more of its memory than a small batch.
    """

    def __init__(
        self, architecture: ClipArchitecture, weights: Path | None, tokenizer: Path | None, device: str
    ) -> None:
        """Build the model.

        Args:
            architecture: of the model.
            weights: its file; None for seeded random weights.
            tokenizer: its file; None for word hashes.
            device: of both towers.

        Raises:
            ValueError: weights are missing from the file, or the tokenizer's file is invalid.
            RuntimeError: a weight has another shape.
        """
        from framekiln_stages.nets.clip.image_tower import load_image_tower

        self._architecture, self._siglip, self.device = architecture, architecture.siglip, device
        self._source = (architecture, weights, weights and weights.stat().st_mtime_ns)
        self._tokenize = _load_tokenizer(architecture, tokenizer)
        self._model: Any = None  # transformers' own, for texts
        if weights is None:
            self._model = build_model(architecture, None)
        self._state: Mapping[str, torch.Tensor] = read_state(weights) if weights else self._model.state_dict()
        self._vision = load_image_tower(architecture, self._state, weights.name if weights else "")
        self._scale = float(self._vision.logit_scale.exp())
        self._bias = 0.0 if self._vision.logit_bias is None else float(self._vision.logit_bias)

    def texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Return embeddings of texts: m d float32. Raises ValueError: a text is longer than the model's input."""
        ids = torch.tensor(self._tokenize(texts), device=self.device)
        model = self._model = self._model or build_model(self._architecture, self._state)
        model.text_model.to(self.device)
        if not self._siglip:
            model.text_projection.to(self.device)
        with torch.inference_mode():
            batches = torch.split(ids, TEXTS_PER_BATCH)
            parts = [model.get_text_features(input_ids=batch).pooler_output for batch in batches]
            return normalize(torch.cat(parts).float(), dim=-1)

    def keep_vision(self, placement: Placement, dtype: torch.dtype, *, rows: int | None = None) -> None:
        """Free the text tower, and prepare the image tower for `images`; a compiled one is warmed up.

        Steps of a process with equal settings share one image tower.

        Args:
            placement: its device, `compile` and `batch`.
            dtype: of the weights and activations.
            rows: most images of a compiled or joint call; None for the placement's `batch`.
        """
        self._model, self._state = None, {}
        key = *self._source, placement.device, placement.channels_last, placement.compile, dtype
        vision = _TOWERS.get(key)
        if vision is None:
            vision = _TOWERS[key] = ready(self._vision, placement, dtype)
        self._vision = vision
        self._images = Batches(vision.forward, placement, rows, regions=vision.layers)
        side = self._architecture.preparation.side
        self._images.warm_up(torch.zeros(1, 3, side, side, dtype=dtype, device=placement.device))

    def images(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return embeddings of one or more preprocessed images (n 3 s s, of the model's dtype): n d float32."""
        with torch.inference_mode():
            return normalize(self._images(pixels).float(), dim=-1)

    def probabilities(self, images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Return the probability of each category for each image: n k float32, from embeddings n d and k d.

        CLIP's add up to 1 over all categories (softmax); SigLIP's are independent (sigmoid).
        """
        logits = self._scale * images @ texts.T + self._bias
        return logits.sigmoid() if self._siglip else logits.softmax(dim=1)


def model_and_config(architecture: ClipArchitecture) -> tuple[Any, Any]:
    """Return the class of transformers and its configuration."""
    from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

    text, vision = _name_sizes(architecture.text), _name_sizes(architecture.vision)
    vision["patch_size"] = architecture.patch
    if architecture.siglip:
        text |= {"vocab_size": 256000, "projection_size": architecture.dims}
        return SiglipModel, SiglipConfig(text_config=text, vision_config=vision)
    return CLIPModel, CLIPConfig(text_config=text, vision_config=vision, projection_dim=architecture.dims)


def build_model(architecture: ClipArchitecture, state: Mapping[str, torch.Tensor] | None) -> Any:
    """Build transformers' model with these weights, or with seeded random ones, in fp32 for inference.

    Raises ValueError: weights are missing; RuntimeError: a weight has another shape.
    """
    model_class, config = model_and_config(architecture)
    if state is not None:
        state = {name: tensor for name, tensor in state.items() if not name.endswith("position_ids")}
    name = model_class.__name__
    return load_model(model_class, config, state, model=name, extra_weights=True, attn_implementation="sdpa")


def _load_tokenizer(architecture: ClipArchitecture, path: Path | None) -> Tokenize:
    if path is None:
        return lambda texts: dummy_tokens(texts, length=SIGLIP_TOKENS if architecture.siglip else MAX_TOKENS)
    return siglip_tokens(path) if architecture.siglip else partial(padded_tokens, clip_tokenizer(path))


def siglip_tokens(path: Path) -> Tokenize:
    """Return SigLIP2's function of texts to tokens: in lower case, padded to its training length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.enable_padding(direction="right", length=SIGLIP_TOKENS, pad_id=0)
    return lambda texts: token_numbers(tokenizer, [text.lower() for text in texts], max_tokens=SIGLIP_TOKENS)


def _name_sizes(sizes: tuple[int, int, int, int]) -> dict[str, int]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return dict(zip(names, sizes, strict=True))
