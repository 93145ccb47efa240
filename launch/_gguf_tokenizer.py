"""The tokenizer of a GGUF file as files of `transformers`: tokenizer.json and its settings.

Byte-level BPE alone: GGUF names the way in which a text is cut before its merges
(`tokenizer.ggml.pre`), and each way here is that of the models which llama.cpp gives the name
(llama.cpp's src/llama-vocab.cpp; the models' own tokenizer.json). A name that is not known is
refused, since another way gives other tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from launch._gguf import Header
from launch._gguf_model import refusal

_NORMAL: Final = 1
_CONTROL, _USER_DEFINED = 3, 4
_KINDS: Final = frozenset({1, 2, 3, 4, 5, 6})

_QWEN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA: Final = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
# Tokens with which llama.cpp ends an answer whatever the file says, of those that end a turn or a
# text in the models that can be converted.
_ENDINGS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>")


class _Cut(NamedTuple):
    """The way in which a text is cut before merges.

    Attributes:
        pattern: Of a piece; None for GPT-2's.
        digits: Each digit is a piece of its own.
        composed: The text is composed first (Unicode's NFC).
        whole: A piece that is a token is taken as it is, whatever merges would make of it.
        begins: The text begins with BOS unless the file says otherwise.
    """

    pattern: str | None = None
    digits: bool = False
    composed: bool = False
    whole: bool = False
    begins: bool = False


_LLAMA3: Final = _Cut(_LLAMA, whole=True, begins=True)
_CUTS: Final = {
    "gpt-2": _Cut(),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _Cut(_QWEN, composed=True),
    "smollm": _Cut(digits=True),
}


class Tokenizer(NamedTuple):
    """The files of a tokenizer.

    Attributes:
        tokenizer: Content of tokenizer.json.
        config: Content of tokenizer_config.json.
        template: The chat template; empty where there is none.
        ids: By key of config.json and generation_config.json.
    """

    tokenizer: dict[str, Any]
    config: dict[str, Any]
    template: str
    ids: dict[str, Any]


def check(header: Header, file: Path) -> None:
    """Refuse a tokenizer that can't be converted, from the header alone.

    Raises:
        LaunchError: With what it is.
    """
    kind = header.values.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise refusal(file, f"its tokenizer is {kind!r}, not byte-level BPE ('gpt2')")
    cut = header.values.get("tokenizer.ggml.pre")
    if cut not in _CUTS:
        known = ", ".join(_CUTS)
        raise refusal(file, f"its tokenizer cuts texts in the way {cut!r}; known: {known}")


def converted(header: Header, file: Path) -> Tokenizer:
    """Return the tokenizer of a file whose header was read with its arrays.

    Raises:
        LaunchError: If it can't be converted.
    """
    check(header, file)
    cut = _CUTS[str(header.values["tokenizer.ggml.pre"])]
    texts = _texts(header, file, "tokenizer.ggml.tokens")
    kinds = header.arrays.get("tokenizer.ggml.token_type", (_NORMAL,) * len(texts))
    merges = [tuple(text.split(" ")) for text in _texts(header, file, "tokenizer.ggml.merges")]
    if len(kinds) != len(texts) or not _KINDS.issuperset(kinds):
        raise refusal(file, "the types of its tokens can't be read")
    vocabulary = {text: token for token, text in enumerate(texts)}
    if len(vocabulary) < len(texts):
        raise refusal(file, "two of its tokens are spelled alike")
    if any(len(pair) != 2 or not vocabulary.keys() >= {*pair, "".join(pair)} for pair in merges):
        raise refusal(file, "a merge of its tokenizer makes no token")
    added = [token for token, kind in enumerate(kinds) if kind in {_CONTROL, _USER_DEFINED}]
    named = {name: _token(header, file, name, len(texts)) for name in ("bos", "eos", "padding")}
    begins = header.values.get("tokenizer.ggml.add_bos_token", cut.begins)
    first = named["bos"] if begins else None
    end = header.values.get("tokenizer.ggml.add_eos_token", False)
    if end:
        raise refusal(file, "its tokenizer ends each text with EOS")
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, texts[token], kinds[token]) for token in added],
        "normalizer": {"type": "NFC"} if cut.composed else None,
        "pre_tokenizer": _pre_tokenizer(cut),
        "post_processor": _byte_level() if first is None else _beginning(first, texts[first]),
        "decoder": _byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": cut.whole,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    template = header.values.get("tokenizer.chat_template", "")
    template = template if isinstance(template, str) else ""
    stops = _stops(header, file, texts, kinds, template)
    ids = {
        "bos_token_id": named["bos"],
        "eos_token_id": stops[0] if len(stops) == 1 else stops,
        "pad_token_id": named["padding"],
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _text(named["bos"], texts),
        "eos_token": _text(named["eos"], texts),
        "pad_token": _text(named["padding"], texts),
        "clean_up_tokenization_spaces": False,
        "model_max_length": header.values.get(
            f"{header.values.get('general.architecture')}.context_length"
        ),
        "padding_side": "left",
    }
    return Tokenizer(content, _given(config), template, _given(ids))


def _texts(header: Header, file: Path, key: str) -> Sequence[str]:
    found = header.arrays.get(key)
    if not found or not all(isinstance(text, str) for text in found):
        raise refusal(file, f"{key} is missing")
    if any("\ufffd" in text for text in found):
        raise refusal(file, f"{key} is no UTF-8")
    return found


def _token(header: Header, file: Path, name: str, n_tokens: int) -> int | None:
    found = header.values.get(f"tokenizer.ggml.{name}_token_id")
    if found is None:
        return None
    if not isinstance(found, int) or not 0 <= found < n_tokens:
        raise refusal(file, f"its {name} token is {found!r}, of {n_tokens:,} tokens")
    return found


def _stops(
    header: Header, file: Path, texts: Sequence[str], kinds: Sequence[int], template: str
) -> list[int]:
    """Tokens that end an answer: those the file names first, then those by their text.

    A base model, without a chat template, ends with the text alone.
    """
    named = [_token(header, file, name, len(texts)) for name in ("eos", "eot", "eom")]
    by_text = [
        token
        for token, text in enumerate(texts)
        if template and text in _ENDINGS and kinds[token] == _CONTROL
    ]
    found = dict.fromkeys(token for token in (*named, *by_text) if token is not None)
    if not found:
        raise refusal(file, "no token ends an answer")
    return list(found)


def _pre_tokenizer(cut: _Cut) -> dict[str, Any]:
    first: dict[str, Any] | None = None
    if cut.digits:
        first = {"type": "Digits", "individual_digits": True}
    elif cut.pattern is not None:
        first = {
            "type": "Split",
            "pattern": {"Regex": cut.pattern},
            "behavior": "Isolated",
            "invert": False,
        }
    last = _byte_level(use_regex=cut.pattern is None)
    return last if first is None else {"type": "Sequence", "pretokenizers": [first, last]}


def _byte_level(*, use_regex: bool = True) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _beginning(token: int, text: str) -> dict[str, Any]:
    """Put BOS in front of a text."""
    special: dict[str, Any] = {"SpecialToken": {"id": text, "type_id": 0}}
    one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    return {
        "type": "TemplateProcessing",
        "single": [special, one],
        "pair": [special, one, special, other],
        "special_tokens": {text: {"id": text, "ids": [token], "tokens": [text]}},
    }


def _added(token: int, text: str, kind: int) -> dict[str, Any]:
    return {
        "id": token,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": kind == _CONTROL,
    }


def _text(token: int | None, texts: Sequence[str]) -> str | None:
    return None if token is None else texts[token]


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
