"""GPU memory that a model needs, from its config.json and the headers of its weights.

Weights are counted tensor by tensor in the format they are computed in; what is quantised stays as
it is stored. Keys and values of a sequence: layers x heads x size of a head x 2 for each token, no
more than the window where attention slides, the compressed vector where attention is latent (MLA,
arXiv:2405.04434 Sec. 2.1), nothing where a layer has no attention. Overhead is a rule of thumb: the
driver's context, activations of one step, logits.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from launch import _converted, _safetensors
from orchestrator.errors import LaunchError
from orchestrator.serving import Footprint

_CONTEXT_BYTES: Final = 3 << 28
_FLOAT_BYTES: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4}
# Bytes a weight takes where a server quantises it while loading.
_QUANTISED: Final = {"fp8": 1.0, "bitsandbytes": 0.6}
_WITHOUT_CACHE: Final = frozenset({"linear_attention", "mamba", "mamba2", "recurrent", "conv"})
_SPLITS: Final = (1, 2, 4, 8, 16)
# Rows whose logits exist at a time: the value, its float copy and the probabilities.
_LOGIT_COPIES: Final = 3


def footprint(
    folder: Path,
    *,
    dtype: str = "auto",
    max_model_len: int | None = None,
    sequences: int = 64,
    batched_tokens: int = 8192,
    quantization: str | None = None,
) -> Footprint:
    """Return the GPU memory that a server of this model needs.

    Args:
        folder: With config.json and *.safetensors, or a GGUF file that is dequantised.
        dtype: Of weights, activations and cache; "auto" for the model's own.
        max_model_len: Longest sequence in tokens; the model's own where None.
        sequences: Answered at the same time.
        batched_tokens: Computed in one step, which bounds activations.
        quantization: Done while loading, as vLLM names it.

    Raises:
        LaunchError: If config.json does not say what is needed, or a header can't be read.
    """
    if folder.is_file():
        config: Mapping[str, Any] = _converted.described(folder).config
    else:
        config = _safetensors.read_json(folder / "config.json")
    stored = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    n_bytes = _DTYPE_BYTES.get(stored if dtype == "auto" else dtype, 2)
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    length = max_model_len or _number(text, folder, "max_position_embeddings", "n_positions")
    cache = math.ceil(_cache_elements(text, folder, length) * n_bytes)
    hidden = _number(text, folder, "hidden_size", "n_embd", "d_model")
    inner = int(text.get("intermediate_size") or 4 * hidden)
    step = min(batched_tokens, sequences * length) * (10 * hidden + 2 * inner) * n_bytes
    logits = sequences * int(text.get("vocab_size") or 0) * 4 * _LOGIT_COPIES
    heads = _number(text, folder, "num_attention_heads", "n_head")
    return Footprint(
        weights=weight_bytes(folder, None if dtype == "auto" else n_bytes, quantization),
        cache=cache,
        cache_wanted=cache * sequences,
        overhead=_CONTEXT_BYTES + step + logits,
        splits=tuple(n for n in _SPLITS if heads % n == 0),
        cache_splits=1 if "kv_lora_rank" in text else _kv_heads(text, heads),
    )


def weight_bytes(folder: Path, n_bytes: int | None = None, quantization: str | None = None) -> int:
    """Memory of the weights.

    Args:
        folder: With *.safetensors, or a GGUF file that is dequantised.
        n_bytes: Of a number that is stored as a float; as stored where None.
        quantization: Done while loading.

    Raises:
        LaunchError: If a header can't be read.
    """
    per_float = _QUANTISED.get(quantization or "")
    if folder.is_file():
        n_numbers = sum(math.prod(part.shape) for part in _converted.described(folder).parts)
        return math.ceil(n_numbers * (per_float or n_bytes or _FLOAT_BYTES["F32"]))
    files, index = _safetensors.weight_files(folder), folder / _safetensors.INDEX
    if index.is_file():
        # Some repositories hold the same weights twice; the index names those of the model.
        names = set(_safetensors.read_json(index).get("weight_map", {}).values())
        files = [path for path in files if path.name in names]
    total = 0.0
    for file in files:
        for _, dtype, size in _safetensors.tensors(file):
            own = _FLOAT_BYTES.get(dtype)
            if own is None:
                total += size
            else:
                total += size // own * (per_float or n_bytes or own)
    return math.ceil(total)


def ordinal(gpu: str) -> int:
    """The number by which a process that inherits our environment knows a GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return int(gpu)
    return [name.strip() for name in visible.split(",")].index(gpu)


def _number(config: Mapping[str, Any], folder: Path, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    raise LaunchError(
        f"{folder / 'config.json'} has no {names[0]}, so its memory cannot be estimated; set "
        "the GPUs of its server in the recipe"
    )


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    value = config.get("num_key_value_heads")
    return value if isinstance(value, int) and value > 0 else heads


def _cache_elements(config: Mapping[str, Any], folder: Path, length: int) -> int:
    """Numbers that are kept of one sequence of this length, over all layers."""
    layers = _number(config, folder, "num_hidden_layers", "n_layer")
    heads = _number(config, folder, "num_attention_heads", "n_head")
    hidden = _number(config, folder, "hidden_size", "n_embd", "d_model")
    if isinstance(rank := config.get("kv_lora_rank"), int):
        each = rank + int(config.get("qk_rope_head_dim") or 0)
    else:
        each = 2 * _kv_heads(config, heads) * int(config.get("head_dim") or hidden // heads)
    window = config.get("sliding_window")
    short = min(length, window) if isinstance(window, int) and window > 0 else length
    kinds = config.get("layer_types")
    if not isinstance(kinds, list):
        return layers * each * length
    tokens = {"sliding_attention": short} | dict.fromkeys(_WITHOUT_CACHE, 0)
    return each * sum(tokens.get(str(kind), length) for kind in kinds)
