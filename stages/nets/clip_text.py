"""CLIP reads tokens of a vocabulary that OpenAI's own repository carries, so no tokenizer has to be downloaded.

`bpe_simple_vocab_16e6.txt.gz` lists merges of a byte-pair encoding, most frequent first, of which CLIP uses 48,894. The
vocabulary follows from them: 256 bytes, the same at the end of a word, each merge, start and end (openai/CLIP,
clip/simple_tokenizer.py). Written out, merges and vocabulary are byte for byte the files that Hugging Face publishes.
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
LONGEST = 77  # tokens that CLIP has positions for, start and end included
MERGES = 49152 - 256 - 2  # clip/simple_tokenizer.py: `merges[1:49152-256-2+1]`

_VOCABULARY = 49408  # tokens; the last two are start and end

# Words, single digits, runs of other signs: as in transformers' CLIPTokenizer.
_PATTERN = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def read_merges(path: Path) -> list[tuple[str, str]]:
    """The merges that CLIP uses, in their order.

    Raises:
        ValueError: the file is not that list.
    """
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")[1 : MERGES + 1]
    pairs = [(first, second) for first, space, second in (line.partition(" ") for line in lines) if space]
    if len(pairs) != MERGES:
        raise ValueError(f"{path} holds {len(pairs)} merges where CLIP needs {MERGES}")
    return pairs


def vocabulary(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Tokens and their numbers, 49,408 of them."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())  # one printable character for each byte, in the order of the vocabulary
    words = (first + second for first, second in merges)
    tokens = [*letters, *(letter + WORD_END for letter in letters), *words, START, END]
    return {token: number for number, token in enumerate(tokens)}


def clip_tokenizer(path: Path) -> Tokenizer:
    """CLIP's tokenizer, equal to transformers' `CLIPTokenizer`; it neither cuts nor pads.

    Args:
        path: bpe_simple_vocab_16e6.txt.gz.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    merges = read_merges(path)
    vocab = vocabulary(merges)
    model = models.BPE(vocab, merges, end_of_word_suffix=WORD_END, continuing_subword_prefix="", unk_token=END)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = pre_tokenizers.Split(Regex(_PATTERN), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (START, END)])
    tokenizer.post_processor = processors.RobertaProcessing(
        (END, vocab[END]), (START, vocab[START]), trim_offsets=False, add_prefix_space=False
    )
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token numbers of each text between start and end, filled up to one length with the end's.

    CLIP's text tower looks backwards only and is read at the first end, so what follows changes nothing.

    Raises:
        ValueError: a text is longer than CLIP can read.
    """
    encoded = tokens(tokenizer, texts, most=LONGEST)
    longest = max(map(len, encoded), default=0)
    return [ids + ids[-1:] * (longest - len(ids)) for ids in encoded]


def stand_in(texts: Sequence[str], *, length: int) -> list[list[int]]:
    """Numbers in place of a tokenizer's, for models with random weights: they tell texts apart and mean nothing.

    One for each word, by its CRC-32 and below CLIP's `START`, then CLIP's `END` up to the length.

    Raises:
        ValueError: a text has more words than fit.
    """
    words = [[zlib.crc32(word.encode()) % (_VOCABULARY - 2) for word in text.lower().split()] for text in texts]
    for text, ids in zip(texts, words, strict=True):
        if len(ids) >= length:
            raise ValueError(f"{text!r} has {len(ids)} words where the model reads {length} tokens: shorten it")
    return [ids + [_VOCABULARY - 1] * (length - len(ids)) for ids in words]


def tokens(tokenizer: Tokenizer, texts: Sequence[str], *, most: int) -> list[list[int]]:
    """Token numbers of each text.

    Raises:
        ValueError: one has more of them than a model can read.
    """
    encoded = [item.ids for item in tokenizer.encode_batch(list(texts))]
    for text, ids in zip(texts, encoded, strict=True):
        if len(ids) > most:
            raise ValueError(f"{text!r} has {len(ids)} tokens where the model reads {most}: shorten it")
    return encoded
