"""Tokenizers of GGUF files, held against those of `transformers`."""

from __future__ import annotations

import json
import tempfile
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split
from transformers import AutoTokenizer, GPT2Tokenizer, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter

from launch import _gguf, _gguf_model, _weights
from launch.embedded.tokens import Tokens
from orchestrator.errors import LaunchError
from tests.launch.gguf_files import MERGES, SPECIAL, TOKENS, U32, changed, model, write

PIECES = st.sampled_from((
    "hello", " world", "Hello", "123", " 12 ", "12345", "'s", "'LL", "\n", "\n\n", "  ", "\t",
    " .", "?!\n", "é", "日本", "🙂", "\u017f", "½", "don't", "<|im_end|>",
    "<|im_start|>user", "\r\n", "\u00a0",
))  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join)
VOCABULARY = {text: token for token, text in enumerate(TOKENS)}
PAIRS: Any = [tuple(merge.split(" ")) for merge in MERGES]


def convert(folder: Path, **options: Any) -> dict[str, Any]:
    file = write(folder / "m.gguf", model("qwen2", num_hidden_layers=1), **options)
    return _gguf_model.converted(_gguf.read(file, arrays=True), file)[0]


@cache
def tokenizer(pre: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return Tokenizer.from_str(json.dumps(convert(Path(folder), pre=pre)))


@cache
def known(pre: str) -> Any:
    """The tokenizer that `transformers` makes of the same vocabulary for models of this kind."""
    kind = Qwen2Tokenizer if pre == "qwen2" else GPT2Tokenizer
    made = kind(vocab=VOCABULARY, merges=PAIRS)
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    found = made.backend_tokenizer
    first = {
        "llama-bpe": Split(Regex(TikTokenConverter().pattern), behavior="isolated", invert=False),
        # As in the tokenizer.json that is published with SmolLM2.
        "smollm": Digits(individual_digits=True),
    }.get(pre)
    if first is not None:
        level = ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")
        found.pre_tokenizer = Sequence([first, level])
    return found


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
@given(text=TEXTS)
def test_token_ids_are_those_of_the_models_own_tokenizer(pre: str, text: str) -> None:
    found = tokenizer(pre).encode(text, add_special_tokens=False).ids
    assert found == known(pre).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
@given(text=TEXTS)
def test_a_text_comes_back_from_its_tokens(pre: str, text: str) -> None:
    text = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
    ids = tokenizer(pre).encode(text, add_special_tokens=False).ids
    assert tokenizer(pre).decode(ids, skip_special_tokens=False) == text


def test_the_cuts_differ_where_those_of_the_models_do() -> None:
    text = "12345 x"
    words = {
        pre: tokenizer(pre).encode(text, add_special_tokens=False).tokens
        for pre in _gguf_model._CUTS
    }
    assert words["llama-bpe"] == ["123", "4", "5", "Ġ", "x"]
    assert words["qwen2"] == words["smollm"] == ["1", "2", "3", "4", "5", "Ġ", "x"]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tokens]:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))

    def serve(**options: Any) -> Tokens:
        file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1), **options)
        folder = _weights.folder_now(str(file))
        ends = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
        ends = ends if isinstance(ends, list) else [ends]
        return Tokens(AutoTokenizer.from_pretrained(folder), ends)

    return serve


def test_a_chat_is_rendered_and_its_turns_are_special_tokens(served: Callable[..., Tokens]) -> None:
    tokens = served()
    chat = [{"role": "user", "content": "hello world"}]
    text = tokens.render(chat, {"add_generation_prompt": True})
    assert text == "<|im_start|>user\nhello world<|im_end|>\n<|im_start|>assistant\n"
    ids = tokens.encode(text)
    assert [ids.count(1), ids.count(2)] == [2, 1]
    assert VOCABULARY["hello"] in ids
    assert VOCABULARY["Ġworld"] in ids
    assert tokens.decode(ids, skip_special=False) == text
    assert "<|im_end|>" not in tokens.decode(ids)
    assert tokens.spelled


def test_an_answer_ends_with_the_turn_or_the_text(served: Callable[..., Tokens]) -> None:
    tokens = served()
    assert tokens.eos == {0, 2}
    assert tokens.end_of_turn == 2


def test_a_base_model_ends_with_the_token_that_is_named(served: Callable[..., Tokens]) -> None:
    assert served(template="", change=changed("tokenizer.ggml.eos_token_id", 0, U32)).eos == {0}


def test_end_of_turn_beside_the_end_of_text(served: Callable[..., Tokens]) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        changed("tokenizer.ggml.eos_token_id", 0, U32)(writer)
        writer.add_eot_token_id(2)

    tokens = served(change=change)
    assert tokens.eos == {0, 2}
    assert tokens.end_of_turn == 2


def test_bos_comes_first_where_the_file_or_its_kind_says_so(
    served: Callable[..., Tokens],
) -> None:
    def begins(*, value: bool) -> Callable[[gguf.GGUFWriter], None]:
        return lambda writer: writer.add_add_bos_token(value=value)

    def first(tokens: Tokens) -> bool:
        return tokens.encode("hello", special=True)[0] == 1

    assert not first(served())
    assert first(served(change=begins(value=True)))
    assert first(served(pre="llama-bpe"))
    assert not first(served(pre="llama-bpe", change=begins(value=False)))


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "spelled alike": ({"tokens": [*TOKENS[:-1], TOKENS[5]]}, "two of its tokens are spelled alike"),
    "a merge of nothing": (
        {"tokens": [*TOKENS[:-1], "other"]},
        "a merge of its tokenizer makes no",
    ),
    "eos outside": (
        {"change": changed("tokenizer.ggml.eos_token_id", 1 << 30, U32)},
        "its eos token is 1073741824, of 273 tokens",
    ),
    "eos at the end": ({"change": changed("tokenizer.ggml.add_eos_token", value=True)}, "with EOS"),
    "unknown types": (
        {"change": changed("tokenizer.ggml.token_type", [9] * len(TOKENS))},
        "types of its tokens",
    ),
    "no merges": ({"change": changed("tokenizer.ggml.merges", ["x"])}, "a merge of its tokenizer"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tokenizer_is_refused(name: str, tmp_path: Path) -> None:
    options, said = DAMAGED[name]
    with pytest.raises(LaunchError, match=said):
        convert(tmp_path, **options)
