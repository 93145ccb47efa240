"""A GGUF file as a model of `transformers`: its config.json, and the name of each tensor there.

Names and keys are those of ggml's docs/gguf.md and llama.cpp's convert_hf_to_gguf.py. Everything in
the file has to be understood: a tensor or setting that is not known may change the numbers, so such
a file is refused.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from launch._gguf import Header, Place
from orchestrator.errors import LaunchError

_CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""Architectures that can be converted, by the name that GGUF and `transformers` both have."""

_MAX_LAYERS: Final = 1024
_TOP: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
_HEAD: Final = ("output.weight", "lm_head.weight")
_FREQUENCIES: Final = "rope_freqs.weight"
_LAYER: Final = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_MORE: Final = {
    "llama": {},
    "qwen2": {
        "attn_q.bias": "self_attn.q_proj.bias",
        "attn_k.bias": "self_attn.k_proj.bias",
        "attn_v.bias": "self_attn.v_proj.bias",
    },
    "qwen3": {
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
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
    is_tied = _HEAD[0] not in header.places
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
        "token_embd.weight": (vocabulary, hidden),
        "output.weight": (vocabulary, hidden),
        "attn_q.weight": (heads * width, hidden),
        "attn_k.weight": (kv_heads * width, hidden),
        "attn_v.weight": (kv_heads * width, hidden),
        "attn_output.weight": (hidden, heads * width),
        "ffn_gate.weight": (inner, hidden),
        "ffn_up.weight": (inner, hidden),
        "ffn_down.weight": (hidden, inner),
        "attn_q.bias": (heads * width,),
        "attn_k.bias": (kv_heads * width,),
        "attn_v.bias": (kv_heads * width,),
        "attn_q_norm.weight": (width,),
        "attn_k_norm.weight": (width,),
    }
    # Only Llama's converter reorders rows: llama.cpp rotates neighbours there, halves elsewhere.
    ordered = {"attn_q.weight": heads, "attn_k.weight": kv_heads} if kind == "llama" else {}
    names = [*_names(kind, layers), *(() if is_tied else (("", *_HEAD),))]
    parts = [
        Part(name, f"{layer}{own}", sizes.get(own, (hidden,)), ordered.get(own, 0))
        for layer, own, name in names
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
        # The number of fewest digits that float32 rounds to the same.
        packed = struct.pack("<f", value)
        for digits in range(1, 10):
            shorter = float(f"{value:.{digits}g}")
            if struct.pack("<f", shorter) == packed:
                return shorter
        return value

    def scaling(self) -> dict[str, Any] | None:
        kind = self._values.get(f"{self.architecture}.rope.scaling.type", "none")
        if kind == "linear":
            return {"rope_type": "linear", "factor": self.real("rope.scaling.factor")}
        if kind != "none":
            raise self.refused(f"its positions are scaled in the way {kind!r}")
        return None


def _names(kind: str, layers: int) -> Iterator[tuple[str, str, str]]:
    """Prefix and name of each tensor in the file, and its name in `transformers`."""
    yield from (("", own, name) for own, name in _TOP.items())
    for layer in range(layers):
        for own, name in (_LAYER | _MORE[kind]).items():
            yield f"blk.{layer}.", own, f"model.layers.{layer}.{name}"


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
