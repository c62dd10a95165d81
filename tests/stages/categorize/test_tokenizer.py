"""CLIP's tokenizer: the published files byte for byte, and the reference's tokens on a thousand texts."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.nets.clip.towers import MAX_TOKENS, clip_tokenizer, padded_tokens, read_merges, vocabulary
from tests.support.media.clip_factory import bpe
from tests.support.media.material import weights, where_present

BPE = "bpe_simple_vocab_16e6.txt.gz"
LARGE = "#version: 0.2"  # first line of merges.txt of openai/clip-vit-large-patch14; of clip-vit-base-patch32:
BASE = "#version: 0.2 - Trained by `huggingface/tokenizers`"


@pytest.fixture(scope="module", params=["made", *where_present(BPE, "published")])
def merges_file(request):
    """Made merges, and those that OpenAI published where they are present."""
    return bpe() if request.param == "made" else weights(BPE)


@pytest.fixture(scope="module")
def merges(merges_file):
    return read_merges(merges_file)


@pytest.fixture(scope="module")
def ours(merges_file):
    return clip_tokenizer(merges_file)


def merges_text(merges, header):
    return "\n".join([header, *(" ".join(pair) for pair in merges), ""])


@pytest.fixture(scope="module")
def theirs(merges, tmp_path_factory):
    """Return transformers' CLIPTokenizer with the two files of Hugging Face, written from the merges."""
    from transformers import CLIPTokenizer

    folder = tmp_path_factory.mktemp("clip")
    (folder / "merges.txt").write_text(merges_text(merges, LARGE), encoding="utf-8")
    (folder / "vocab.json").write_text(json.dumps(vocabulary(merges), ensure_ascii=False), encoding="utf-8")
    return CLIPTokenizer.from_pretrained(folder)


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_merges_and_vocabulary_are_the_published_files():
    merges = read_merges(weights(BPE))
    assert sha(merges_text(merges, LARGE)) == "9fd691f7c8039210e0fced15865466c65820d09b63988b0174bfe25de299051a"
    assert sha(merges_text(merges, BASE)) == "f526393189112391ce6f9795d4695f704121ce452c3aad1f5335cc41337eba85"
    vocab = vocabulary(merges)
    large = json.dumps(vocab, ensure_ascii=False)
    assert sha(large) == "3f0c4f7d2086b61b38487075278ea9ed04edb53a03cbb045b86c27190fa8fb69"
    base = json.dumps(vocab, ensure_ascii=False, separators=(",", ":"))
    assert sha(base) == "5047b556ce86ccaf6aa22b3ffccfc52d391ea4accdab9c2f2407da5b742d4363"


def words(merges, count):
    """Return sentences of the vocabulary's words, with the irregularities of real captions."""
    chosen = random.Random(3)
    known = [first + second for first, second in merges]
    known = [word.removesuffix("</w>") for word in known if word.removesuffix("</w>").isascii()]
    accidents = [
        "don't",
        "it's",
        "I'LL",
        "10,000",
        "3.5mm",
        "#tag",
        "e-mail@x.org",
        "naïve",
        "Ünïcode",
        "日本語",
        "👩‍👩‍👧",
    ]
    for _ in range(count):
        text = [chosen.choice(known + accidents * 400) for _ in range(chosen.randint(0, 12))]
        text = [chosen.choice([str.lower, str.upper, str.title])(word) for word in text]
        yield chosen.choice([" ", "  ", "\t", "\u00a0"]).join(text)


def test_tokens_of_a_thousand_sentences_are_those_of_the_reference(merges, ours, theirs):
    texts = list(words(merges, 1000))
    assert len(set(texts)) > 900
    assert [item.ids for item in ours.encode_batch(texts)] == theirs(texts)["input_ids"]


@settings(max_examples=400, deadline=None)
@given(text=st.text(max_size=40))
def test_tokens_of_any_text_are_those_of_the_reference(ours, theirs, text):
    for form in (text, unicodedata.normalize("NFD", text), f"a photo of {text}."):
        assert ours.encode(form).ids == theirs(form)["input_ids"]


@pytest.mark.parametrize("text", ["", " ", "<|endoftext|>", "a <|startoftext|>b", "<|ENDOFTEXT|>", "a\u0301", "ﬁ", "İ"])
def test_tokens_of_odd_texts_are_those_of_the_reference(ours, theirs, text):
    assert ours.encode(text).ids == theirs(text)["input_ids"]


def test_a_known_sentence_has_its_known_tokens():
    assert clip_tokenizer(weights(BPE)).encode("a photo of a cat").ids == [49406, 320, 1125, 539, 320, 2368, 49407]


def test_texts_are_padded_with_ends(ours):
    short, long = padded_tokens(ours, ["a b", "a dog in a red hat"])
    assert (short[0], short[3:]) == (49406, [49407] * (len(long) - 3))
    assert long[-1] == 49407 != long[-2]
    assert padded_tokens(ours, []) == []


def test_a_text_longer_than_the_input_is_refused(ours):
    assert len(padded_tokens(ours, ["a " * (MAX_TOKENS - 2)])[0]) == MAX_TOKENS
    with pytest.raises(ValueError, match="78 tokens, .* 77"):
        padded_tokens(ours, ["a " * (MAX_TOKENS - 1)])


def test_a_short_list_of_merges_is_refused(tmp_path):
    path = tmp_path / "few.gz"
    path.write_bytes(gzip.compress(b"#version: 0.2\na b\nab c\n"))
    with pytest.raises(ValueError, match="2 merges .* 48894"):
        read_merges(path)
