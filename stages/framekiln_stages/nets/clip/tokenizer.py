"""CLIP's tokenizer, built from the vocabulary in OpenAI's own repository, so that no other file is needed.

`bpe_simple_vocab_16e6.txt.gz` lists merges of a byte-pair encoding, most frequent first; CLIP uses 48,894 of them. The
vocabulary follows from them: 256 bytes, the same at the end of a word, each merge, start and end (openai/CLIP,
clip/simple_tokenizer.py). Written out, merges and vocabulary equal Hugging Face's published files byte for byte.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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

    CLIP's text tower is causal and is read at the first end, so that padding changes nothing.
    Raises ValueError: a text is longer than CLIP's input.
    """
    numbers = token_numbers(tokenizer, texts, max_tokens=MAX_TOKENS)
    longest = max(map(len, numbers), default=0)
    return [ids + ids[-1:] * (longest - len(ids)) for ids in numbers]


def dummy_tokens(texts: Sequence[str], *, length: int) -> list[list[int]]:
    """Return hashes in place of tokens, for models with random weights: different texts get different numbers.

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
