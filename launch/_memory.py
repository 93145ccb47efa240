"""GPU memory that a model needs, from its config.json and the headers of its weights.

Weights are counted tensor by tensor in the format they are computed in; what is quantised stays as
it is stored. Keys and values of a sequence: layers x heads x size of a head x 2 for each token, no
more than the window where attention slides, the compressed vector where attention is latent (MLA,
arXiv:2405.04434 Sec. 2.1), nothing where a layer has no attention. Overhead is a rule of thumb: the
driver's context, activations of one step, logits.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launch import _converted
from orchestrator.errors import LaunchError, on_disk_error
from orchestrator.serving import Footprint

INDEX: Final = "model.safetensors.index.json"
# Settings that have other weights loaded: of a file by this name, or of another model, which the
# folder's weights then only help (speculators, Medusa).
_ELSEWHERE: Final = (
    "transformers_weights", "speculators_config", "medusa_num_heads", "base_model_name_or_path",
)  # fmt: skip
_MAX_HEADER: Final = 100 << 20
_CONFIG: Final = "config.json"


def weight_files(folder: Path) -> list[Path]:
    """All weights of a folder, whether or not its index names them."""
    return sorted(folder.glob("*.safetensors"))


def check(folder: Path) -> None:
    """Refuse a folder of which something else is loaded than its own files.

    Raises:
        LaunchError: With what it would be.
    """
    if (folder / "adapter_config.json").is_file():
        raise LaunchError(
            f"{folder} holds a LoRA adapter (adapter_config.json): libraries load another model "
            f"in its place; give the adapter by lora_modules or lora_paths"
        )
    stated = read_json(folder / _CONFIG)
    for key in _ELSEWHERE:
        if stated.get(key) is not None:
            raise LaunchError(f"{folder / _CONFIG}: {key} is not supported; remove it")
    settings = folder / "tokenizer_config.json"
    named = read_json(settings) if settings.is_file() else {}
    for key, value in named.items():
        if key.endswith("_file") and isinstance(value, str) and _is_there(folder, value):
            raise LaunchError(f"{settings}: {key} names a file of its own, {value!r}; remove it")
    _weight_map(folder)


def _is_there(folder: Path, name: str) -> bool:
    """Return True if a file of this name is found in a folder or in the working directory."""
    try:
        return bool(name) and (Path(folder, name).exists() or Path(name).exists())
    except OSError:
        return False  # too long to name a file


def deciding_files(folder: Path) -> list[Path]:
    """The files whose content decides a model's weights.

    An index counts where it says more than the headers of the files do: where files are left out,
    or a tensor stands in several of them.

    Raises:
        LaunchError: If the index names what is not there, or a header can't be read.
    """
    files, listed = weight_files(folder), _weight_map(folder)
    if listed is None:
        return files
    held: dict[str, str] = {}
    for file in files:
        for name, *_ in tensors(file):
            if name in held:
                return [*files, folder / INDEX]
            held[name] = file.name
    return files if held == listed else [*files, folder / INDEX]


def _weight_map(folder: Path) -> dict[str, str] | None:
    """The file of each tensor by the index; None without an index."""
    path = folder / INDEX
    if not path.exists():
        return None
    listed = read_json(path).get("weight_map")
    if not isinstance(listed, dict):
        raise LaunchError(f"{path} has no weight_map")
    for name in set(map(str, listed.values())):
        plain = Path(name).name == name and name.endswith(".safetensors")
        if not plain or not (folder / name).is_file():
            raise LaunchError(f"{path} names {name!r}, which is no safetensors file of its folder")
    return {str(tensor): str(name) for tensor, name in listed.items()}


def tensors(file: Path) -> Iterator[tuple[str, str, int]]:
    """Name, format and bytes of the tensors of a file, by its header.

    Raises:
        LaunchError: If it is no safetensors file.
    """
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _MAX_HEADER:
            raise LaunchError(f"{file} is no safetensors file: its header would have {length} B")
        header = _parsed(stream.read(length), file)
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        try:
            first, last = tensor["data_offsets"]
            yield name, str(tensor["dtype"]), int(last) - int(first)
        except (TypeError, KeyError, ValueError) as error:
            raise LaunchError(f"{file}: the header of {name!r} cannot be read: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        LaunchError: If the file holds none.
    """
    with on_disk_error(f"{path} cannot be read", LaunchError):
        return _parsed(path.read_bytes(), path)


def _parsed(content: bytes, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise LaunchError(f"{path} holds no JSON object")
    return found


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
        config = read_json(folder / "config.json")
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
    files, listed = weight_files(folder), _weight_map(folder)
    if listed is not None:
        # Some repositories hold the same weights twice; the index names those of the model.
        names = set(listed.values())
        files = [path for path in files if path.name in names]
    total = 0.0
    for file in files:
        for _, dtype, size in tensors(file):
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
