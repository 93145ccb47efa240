"""The files of a model folder that are loaded, and headers of safetensors files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from orchestrator.errors import LaunchError

INDEX: Final = "model.safetensors.index.json"
# Settings that have other weights loaded: of a file by this name, or of another model, which the
# folder's weights then only help (speculators, Medusa).
_ELSEWHERE: Final = (
    "transformers_weights",
    "speculators_config",
    "medusa_num_heads",
    "base_model_name_or_path",
)
_MAX_HEADER: Final = 100 << 20
_CONFIG: Final = "config.json"
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"


class Tensor(NamedTuple):
    """A tensor as the header of its file states it; its length in bytes."""

    name: str
    dtype: str
    n_bytes: int


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
    settings = folder / _TOKENIZER_CONFIG
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
        for tensor in tensors(file):
            if tensor.name in held:
                return [*files, folder / INDEX]
            held[tensor.name] = file.name
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


def tensors(file: Path) -> Iterator[Tensor]:
    """The tensors of a file, by its header.

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
            yield Tensor(name, str(tensor["dtype"]), int(last) - int(first))
        except (TypeError, KeyError, ValueError) as error:
            raise LaunchError(f"{file}: the header of {name!r} cannot be read: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        LaunchError: If the file holds none.
    """
    try:
        return _parsed(path.read_bytes(), path)
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror or error}") from error


def _parsed(content: bytes, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise LaunchError(f"{path} holds no JSON object")
    return found
