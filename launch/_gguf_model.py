"""A GGUF file as a model of `transformers`: config.json, names of tensors, files of its tokenizer.

Names and keys are those of ggml's docs/gguf.md and llama.cpp's convert_hf_to_gguf.py. Everything in
the file has to be understood: a tensor or setting that is not known may change the numbers, so such
a file is refused.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from launch._gguf import Header, Place
from orchestrator.errors import LaunchError

_CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""Architectures that can be converted, by the name that GGUF and `transformers` both have."""

_MAX_LAYERS: Final = 1024
# By the name in the file: the name in `transformers`, and the lengths of the tensor's dimensions.
_TOP: Final = {
    "token_embd.weight": ("model.embed_tokens.weight", "vocabulary", "hidden"),
    "output_norm.weight": ("model.norm.weight", "hidden"),
}
_HEAD: Final = "output.weight"
_FREQUENCIES: Final = "rope_freqs.weight"
_LAYER: Final = {
    "attn_norm.weight": ("input_layernorm.weight", "hidden"),
    "attn_q.weight": ("self_attn.q_proj.weight", "queries", "hidden"),
    "attn_k.weight": ("self_attn.k_proj.weight", "keys", "hidden"),
    "attn_v.weight": ("self_attn.v_proj.weight", "keys", "hidden"),
    "attn_output.weight": ("self_attn.o_proj.weight", "hidden", "queries"),
    "ffn_norm.weight": ("post_attention_layernorm.weight", "hidden"),
    "ffn_gate.weight": ("mlp.gate_proj.weight", "inner", "hidden"),
    "ffn_up.weight": ("mlp.up_proj.weight", "inner", "hidden"),
    "ffn_down.weight": ("mlp.down_proj.weight", "hidden", "inner"),
}
_MORE: Final = {
    "llama": {},
    "qwen2": {
        "attn_q.bias": ("self_attn.q_proj.bias", "queries"),
        "attn_k.bias": ("self_attn.k_proj.bias", "keys"),
        "attn_v.bias": ("self_attn.v_proj.bias", "keys"),
    },
    "qwen3": {
        "attn_q_norm.weight": ("self_attn.q_norm.weight", "width"),
        "attn_k_norm.weight": ("self_attn.k_norm.weight", "width"),
    },
}
# Settings of a model by llama.cpp that say nothing new, or are read below.
_KNOWN: Final = frozenset((
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.layer_norm_rms_epsilon", "attention.value_length", "block_count", "context_length",
    "embedding_length", "feed_forward_length", "rope.dimension_count", "rope.freq_base",
    "rope.scaling.attn_factor", "rope.scaling.factor", "rope.scaling.finetuned",
    "rope.scaling.original_context_length", "rope.scaling.type", "vocab_size",
))  # fmt: skip
# Llama 3.1 to 3.3 differ in the factor alone (Llama 3.1's rope_scaling in its config.json).
_LLAMA3: Final = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_CLOSE: Final = 1e-4


class Part(NamedTuple):
    """A tensor of the converted model.

    Attributes:
        name: In `transformers`.
        source: In the file.
        shape: In both.
        heads: Number of heads whose rows llama.cpp has in its own order; 0 where it has not.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    heads: int


class Model(NamedTuple):
    """A model as the header of its file describes it.

    Attributes:
        config: The content of config.json, of float32 weights.
        parts: The tensors, in the order of the file.
        frequencies: The tensor of factors of rotary frequencies, if there is one.
    """

    config: dict[str, Any]
    parts: Sequence[Part]
    frequencies: Place | None


def described(header: Header, file: Path) -> Model:
    """Return the model of a file, from its header alone.

    Raises:
        LaunchError: If it can't be converted, with the reason and the server that takes the file.
    """
    _check_tokenizer(header, file)
    found = _Settings(header, file)
    kind = found.architecture
    hidden, heads = found.number("embedding_length"), found.number("attention.head_count")
    kv_heads = found.number("attention.head_count_kv", heads)
    width = found.number("attention.key_length", hidden // heads)
    layers = found.number("block_count")
    vocabulary = header.lengths.get("tokenizer.ggml.tokens", 0)
    if layers > _MAX_LAYERS or not vocabulary:
        raise found.refused(f"{layers:,} layers and {vocabulary:,} tokens are no usable model")
    for same in ("attention.value_length", "rope.dimension_count"):
        if (other := found.number(same, width)) != width:
            raise found.refused(f"{same} is {other}, not {width} as its heads are wide")
    if heads % kv_heads or width % 2:
        raise found.refused(f"{heads} heads of {width} over {kv_heads} key-value heads")
    inner = found.number("feed_forward_length")
    is_tied = _HEAD not in header.places
    config: dict[str, Any] = {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "dtype": "float32",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "hidden_act": "silu",
        "max_position_embeddings": found.number("context_length"),
        "rms_norm_eps": found.real("attention.layer_norm_rms_epsilon"),
        # As llama.cpp takes it where a file does not say.
        "rope_theta": found.real("rope.freq_base", 10_000.0),
        "attention_dropout": 0.0,
        "tie_word_embeddings": is_tied,
        "use_cache": True,
    }
    if kind != "qwen2":
        config["attention_bias"] = False
    if kind == "llama":
        config["mlp_bias"] = False
    if (scaling := found.scaling()) is not None:
        config["rope_scaling"] = scaling
    sizes = {
        "vocabulary": vocabulary,
        "hidden": hidden,
        "inner": inner,
        "width": width,
        "queries": heads * width,
        "keys": kv_heads * width,
    }
    # Only Llama's converter reorders rows: llama.cpp rotates neighbours there, halves elsewhere.
    ordered = {"attn_q.weight": heads, "attn_k.weight": kv_heads} if kind == "llama" else {}
    top = _TOP if is_tied else _TOP | {_HEAD: ("lm_head.weight", "vocabulary", "hidden")}
    # Beginnings of names in the file and in `transformers`, and the tensors that have them.
    named = [("", "", top)] + [
        (f"blk.{layer}.", f"model.layers.{layer}.", _LAYER | _MORE[kind]) for layer in range(layers)
    ]
    parts = [
        Part(
            f"{prefix}{name}",
            f"{layer}{own}",
            tuple(sizes[length] for length in lengths),
            ordered.get(own, 0),
        )
        for layer, prefix, tensors in named
        for own, (name, *lengths) in tensors.items()
    ]
    return Model(config, _placed(parts, header, found), header.places.get(_FREQUENCIES))


def rope_scaling(factors: Sequence[float], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `rope_scaling` of Llama 3.1 that divides rotary frequencies by these factors.

    llama.cpp stores the factors themselves, `transformers` what they are computed from.

    Args:
        factors: One for each of the frequencies, half the width of a head.
        config: Of the model, with `head_dim` and `rope_theta`.

    Returns:
        None if they are no factors of Llama 3.1's kind.
    """
    width, base = config["head_dim"], config["rope_theta"]
    factor = max(factors, default=0.0)
    if len(factors) != width // 2 or not math.isfinite(factor) or factor < 1:
        return None
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    context = _LLAMA3["original_max_position_embeddings"]
    for place, found in enumerate(factors):
        wavelength = 2 * math.pi * base ** (2 * place / width)
        smooth = min(1.0, max(0.0, (context / wavelength - low) / (high - low)))
        if not math.isclose(1 / ((1 - smooth) / factor + smooth), found, rel_tol=_CLOSE):
            return None
    return {"rope_type": "llama3", "factor": float(factor), **_LLAMA3}


def refusal(file: Path, why: str) -> LaunchError:
    """Return the error for a file that can't be converted."""
    return LaunchError(
        f"{file} cannot be converted for this server: {why}; llama-server takes GGUF files as "
        f"they are (server: llamacpp)"
    )


class _Settings:
    """The settings of a model, by the keys of its architecture."""

    def __init__(self, header: Header, file: Path) -> None:
        self._values = header.values
        self._file = file
        named = self._values.get("general.architecture")
        if named not in _CLASSES:
            raise self.refused(
                f"its architecture is {named!r}; can be converted: {', '.join(_CLASSES)}"
            )
        self.architecture = str(named)
        if self._values.get("split.count", 1) not in {0, 1}:
            raise self.refused("it is one of several parts; join them with llama-gguf-split")
        prefix = f"{self.architecture}."
        own = {key.removeprefix(prefix) for key in self._values if key.startswith(prefix)}
        if unknown := sorted(own - _KNOWN):
            raise self.refused(f"it has settings of another kind of model: {', '.join(unknown)}")

    def refused(self, why: str) -> LaunchError:
        return refusal(self._file, why)

    def number(self, key: str, usual: int | None = None) -> int:
        value = self._values.get(f"{self.architecture}.{key}", usual)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
            raise self.refused(f"{self.architecture}.{key} is {value!r}, not one positive number")
        return value

    def real(self, key: str, usual: float | None = None) -> float:
        value = self._values.get(f"{self.architecture}.{key}", usual)
        if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
            raise self.refused(f"{self.architecture}.{key} is {value!r}, not a positive number")
        # Stored as float32: the shortest decimal that rounds to it is what the author wrote.
        return float(str(np.float32(value)))

    def scaling(self) -> dict[str, Any] | None:
        kind = self._values.get(f"{self.architecture}.rope.scaling.type", "none")
        if kind == "linear":
            return {"rope_type": "linear", "factor": self.real("rope.scaling.factor")}
        if kind != "none":
            raise self.refused(f"its positions are scaled in the way {kind!r}")
        return None


def _placed(parts: Sequence[Part], header: Header, found: _Settings) -> list[Part]:
    """Return the parts in the order of the file, where each is there and nothing else is."""
    wanted = {part.source: part for part in parts}
    there = header.places.keys() - {_FREQUENCIES}
    if missing := sorted(wanted.keys() - there):
        raise found.refused(f"tensors are missing: {_some(missing)}")
    if unknown := sorted(there - wanted.keys()):
        raise found.refused(f"it has tensors of another kind of model: {_some(unknown)}")
    for part in parts:
        if (shape := header.places[part.source].shape) != part.shape:
            raise found.refused(f"{part.source} has the shape {shape}, not {part.shape}")
    return sorted(parts, key=lambda part: header.places[part.source].begin)


def _some(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# The tokenizer: byte-level BPE alone. GGUF names the way in which a text is cut before its merges
# (`tokenizer.ggml.pre`), and each way here is that of the models which llama.cpp gives the name
# (llama.cpp's src/llama-vocab.cpp; the models' own tokenizer.json). A name that is not known is
# refused, since another way gives other tokens.

_NORMAL: Final = 1
_CONTROL, _USER_DEFINED = 3, 4
_KINDS: Final = frozenset({1, 2, 3, 4, 5, 6})

# Of a token that is met in a text as it is written.
_AS_IT_IS: Final = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
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


_LLAMA3_CUT: Final = _Cut(_LLAMA, whole=True, begins=True)
_CUTS: Final = {
    "gpt-2": _Cut(),
    "llama-bpe": _LLAMA3_CUT,
    "llama-v3": _LLAMA3_CUT,
    "llama3": _LLAMA3_CUT,
    "qwen2": _Cut(_QWEN, composed=True),
    "smollm": _Cut(digits=True),
}


def _check_tokenizer(header: Header, file: Path) -> None:
    """Refuse a tokenizer that can't be converted, from the header alone."""
    kind = header.values.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise refusal(file, f"its tokenizer is {kind!r}, not byte-level BPE ('gpt2')")
    cut = header.values.get("tokenizer.ggml.pre")
    if cut not in _CUTS:
        known = ", ".join(_CUTS)
        raise refusal(file, f"its tokenizer cuts texts in the way {cut!r}; known: {known}")


def converted(
    header: Header, file: Path
) -> tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]:
    """Return the tokenizer of a file that is `described` and was read with its arrays.

    Returns:
        Content of tokenizer.json and of tokenizer_config.json; the chat template, empty where there
        is none; ids by key of config.json and generation_config.json.

    Raises:
        LaunchError: If it can't be converted.
    """
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
        "added_tokens": [
            {"id": token, "content": texts[token], **_AS_IT_IS, "special": kinds[token] == _CONTROL}
            for token in added
        ],
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
    names = (("bos", "bos"), ("eos", "eos"), ("padding", "pad"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{key}_token": texts[at] for name, key in names if (at := named[name]) is not None},
        "clean_up_tokenization_spaces": False,
        "model_max_length": header.values.get(
            f"{header.values.get('general.architecture')}.context_length"
        ),
        "padding_side": "left",
    }
    return content, _given(config), template, _given(ids)


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
    last = _byte_level(use_regex=cut.pattern is None)
    if cut.digits:
        first: dict[str, Any] = {"type": "Digits", "individual_digits": True}
    elif cut.pattern is not None:
        pattern = {"Regex": cut.pattern}
        first = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    else:
        return last
    return {"type": "Sequence", "pretokenizers": [first, last]}


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


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
