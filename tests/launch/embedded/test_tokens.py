"""Pieces of tokens and continuations in context."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from launch.embedded.served import Served
from launch.embedded.tokens import Tokens


def metaspace() -> Tokens:
    """A tokenizer that puts a space before every text, as Llama 2's does."""
    pieces = [
        "<unk>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "▁a",
        "ab",
    ]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("a", "b")]
    backend = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    names = {"eos_token": "</s>"}
    return Tokens(PreTrainedTokenizerFast(tokenizer_object=backend, **names))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_bytes_of_tokens_joined_are_those_of_the_text(models: dict[str, Served], text: str) -> None:
    tokens = models["bos"].tokens
    ids = tokens.encode(text)
    assert b"".join(tokens.piece(token) for token in ids) == text.encode()


def test_special_tokens_show_as_text_and_are_left_out_of_answers(bos: Served) -> None:
    ids = bos.tokens.encode("a<|im_end|>b")
    assert [bos.tokens.piece(token) for token in ids] == [b"a", b"<|im_end|>", b"b"]
    assert bos.tokens.decode(ids) == "ab"
    assert bos.tokens.decode(ids, skip_special=False) == "a<|im_end|>b"


def test_the_template_tells_which_token_ends_a_turn(served: Served) -> None:
    assert served.tokens.piece(served.tokens.end_of_turn or 0) == b"<|im_end|>"


def test_a_text_after_a_special_token_is_cut_as_alone(bos: Served) -> None:
    text = "<|im_start|>assistant\n"
    found = bos.tokens.continuation(bos.tokens.context(text, bos.tokens.encode(text)), "hello")
    assert found.boundary == "separate"
    assert list(found.ids) == bos.tokens.encode("hello")


def test_a_text_that_would_merge_keeps_the_context_and_says_so(bos: Served) -> None:
    text = "<|im_start|>wor"
    ids = bos.tokens.encode(text)
    found = bos.tokens.continuation(bos.tokens.context(text, ids), "ld")
    assert bos.tokens.encode("world")[: len(ids) - 1] != ids[1:] or found.boundary != "merged"
    text = "<|im_start|>hel"
    ids = bos.tokens.encode(text)
    found = bos.tokens.continuation(bos.tokens.context(text, ids), "lo")
    assert found.boundary == "merged"
    assert list(found.ids) == bos.tokens.encode("lo")


def test_a_context_with_other_tokens_than_its_text_is_not_called_merged(bos: Served) -> None:
    odd = [bos.tokens.encode(letter)[0] for letter in "hel"]
    found = bos.tokens.continuation(bos.tokens.context("hel", odd), "lo")
    assert found.boundary == "separate"


def test_pieces_that_begin_with_a_space_are_spelled_out() -> None:
    tokens = metaspace()
    assert tokens.spelled
    assert tokens.piece(tokens.encode("a")[0]) == b" a"
    assert tokens.piece(2 + 0xE9) == b"\xe9"


def test_a_continuation_gets_no_space_of_its_own() -> None:
    tokens = metaspace()
    context = tokens.context("a\n", tokens.encode("a\n"))
    assert tokens.continuation(context, "ab").ids == (tokens.encode("\nab")[-1],)


@pytest.mark.parametrize("text", ["", "\x00", "\ud7ff", "e\u0301\r\n", "👩‍👩‍👧", "<|im_end|>"])
def test_nasty_texts_come_back(bos: Served, text: str) -> None:
    assert bos.tokens.decode(bos.tokens.encode(text), skip_special=False) == text
