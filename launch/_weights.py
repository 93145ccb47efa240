"""Location of a model's weights, and the files that decide its numbers; no downloads.

What looks for weights raises `LaunchError` where they are not there, or can't be converted.
"""

import asyncio
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from launch import _converted, _memory
from orchestrator.disk.files import sha256_of
from orchestrator.errors import LaunchError, UsageError, nearest
from orchestrator.weights import PACKAGE_PREFIX, PUBLISHED, package_folders, split_package

BUNDLED_PREFIX: Final = "bundled:"
GGUF_SUFFIX: Final = ".gguf"
_BUNDLED: Final = Path(__file__).parent / "embedded" / "models"
_HUB_ID: Final = re.compile(r"(?P<id>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")
_TOKENIZER_FILES: Final = (
    "added_tokens.json", "merges.txt", "special_tokens_map.json", "spiece.model", "tokenizer.json",
    "tokenizer.model", "tokenizer_config.json", "vocab.json",
)  # fmt: skip
# Read where there is no tokenizer.json.
_FALLBACK_TOKENIZER_FILES: Final = ("sentencepiece.bpe.model", "tekken.json", "vocab.txt")
_CONFIG_FILES: Final = (
    "config.json", "generation_config.json", "hf_quant_config.json", "quant_config.json",
    "quantize_config.json", "params.json",
)  # fmt: skip
# Files of a model's folder that no loader reads: weights in other formats, documents, metadata.
_INERT: Final = re.compile(
    r"\..*|(licen[cs]e|notice|readme|use_policy)(\.(txt|rst))?"
    r"|.*\.(safetensors|bin|pth?|ckpt|h5|msgpack|onnx|ot|gguf|md|png|jpe?g|gif|svg|pdf|ipynb|log)",
    re.IGNORECASE,
)
# Of files that are read from folders in a model's: further chat templates, modules of a pooling.
_TEMPLATES: Final = "additional_chat_templates"
_MODULES: Final = "modules.json"
_LFS_POINTER: Final = b"version https://git-lfs"
_NONE: Final = "none"
_OTHERS: Final = "others"


def resolve(weights: str) -> Path:
    """Return the folder or the GGUF file that `weights` names.

    That is `bundled:NAME`, a path, `package:MODULE/FILE.gguf`, or `org/name[@revision]`. A hub id
    is looked up in the local Hugging Face cache and never downloaded.

    Raises:
        UsageError: If no bundled model has this name.
        LaunchError: If there is no such folder, or no weights in it.
    """
    if weights.startswith(BUNDLED_PREFIX):
        name = weights.removeprefix(BUNDLED_PREFIX)
        known = _bundled_names()
        if known and name not in known:
            # Wrong on every machine, as a misspelt kind is.
            near = nearest(weights, [f"{BUNDLED_PREFIX}{one}" for one in known], "")
            raise UsageError(f"no bundled model {weights!r}{near or f'; available: {_offered()}'}")
        return _checked(_BUNDLED / name)
    if weights.startswith(PACKAGE_PREFIX):
        return in_package(weights)
    path = Path(weights).expanduser()
    if path.is_dir():
        return _checked(path.resolve())
    if path.is_file() and path.suffix == GGUF_SUFFIX:
        return path.resolve()
    hub = _HUB_ID.fullmatch(weights)
    if hub is None:
        raise LaunchError(
            f"no model folder {weights!r}; give a folder, a GGUF file or one of {_offered()}"
        )
    hub_id = hub["id"]
    revision = hub["revision"] or "main"
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    cache_folder = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    model = cache_folder / f"models--{hub_id.replace('/', '--')}"
    reference = model / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    snapshot = model / "snapshots" / commit
    if not snapshot.is_dir():
        raise LaunchError(
            f"{hub_id} at revision {revision} is not in the local cache {cache_folder}, and "
            "nothing is downloaded automatically; download it first, or give a folder or one "
            f"of {_offered()}"
        )
    return _checked(snapshot)


def in_package(weights: str) -> Path:
    """Return the file that `package:MODULE/FILE` names, without importing the package.

    Raises:
        LaunchError: If the package is not installed, or has no such file.
    """
    split = split_package(weights)
    if split is None:
        raise LaunchError(f"{weights!r} names no file of a package; write package:MODULE/FILE.gguf")
    module, name = split
    folders = package_folders(module)
    if not folders:
        known = next((one for one in PUBLISHED if one.module == module), None)
        how = f"run: orchestrator get weights {known.name}" if known else "install it with pip"
        raise LaunchError(f"the package {module!r} with the weights is not installed; {how}")
    for folder in folders:
        if (file := folder / name).is_file():
            return file.resolve()
    raise LaunchError(f"the package {module!r} has no file {str(name)!r}")


async def folder(weights: str) -> Path:
    """Return a folder with the model, made of a GGUF file where `weights` names one."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(folder_now, weights, stop)
    finally:
        # When this is cancelled the thread ends too, and leaves nothing.
        stop.set()


def folder_now(weights: str, stop: threading.Event | None = None) -> Path:
    """Return the same outside an event loop; `stop` gives a conversion up."""
    found = resolve(weights)
    return found if found.is_dir() else _converted.folder(found, _file_digest(found), stop)


def identity(weights: str) -> dict[str, str]:
    """sha256 of what decides a model's numbers, by part; independent of where the folder lies."""
    folder = resolve(weights)
    if folder.is_file():
        # Hash of a GGUF file, which holds everything, and the number format that is made of it.
        _converted.described(folder)
        content = _file_digest(folder)
        return {"weights": content, "tokenizer": content, "dequantised": _converted.DEQUANTISED}
    parts = deciding_files(folder)
    found = {part: digest(files, folder) for part, files in parts.items() if part != _OTHERS}
    settings = folder / "tokenizer_config.json"
    if not parts["chat_template"] and settings.is_file():
        # Older models keep it there.
        template = _memory.read_json(settings).get("chat_template")
        if template:
            found["chat_template"] = hashlib.sha256(json.dumps(template).encode()).hexdigest()
    # Usual folders hold nothing more.
    return found | ({_OTHERS: digest(parts[_OTHERS], folder)} if parts[_OTHERS] else {})


def deciding_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files that may decide a model's numbers, by part of its identity.

    Settings can name files by other than the usual names: a configuration or a tokenizer for a
    version of the library, a vocabulary of the tokenizer's class. So every file of the folder
    counts that is not known to be read by nobody.

    Raises:
        LaunchError: See `deciding_files`.
    """
    has_own = (folder / "tokenizer.json").is_file()
    tokenizer = (*_TOKENIZER_FILES, *(() if has_own else _FALLBACK_TOKENIZER_FILES))
    parts = {
        "weights": _memory.deciding_files(folder),
        "config": _existing(folder, _CONFIG_FILES),
        "tokenizer": _existing(folder, tokenizer),
        "chat_template": _existing(folder, ("chat_template.jinja",)),
    }
    known = {folder / _memory.INDEX, *chain.from_iterable(parts.values())}
    return parts | {_OTHERS: [path for path in _readable(folder) if path not in known]}


def _readable(folder: Path) -> list[Path]:
    """The files of a folder that a loader may read, weights apart."""
    own = [path for path in folder.iterdir() if not _INERT.fullmatch(path.name)]
    further = "*/*" if (folder / _MODULES).is_file() else f"{_TEMPLATES}/*"
    return sorted(path for path in (*own, *folder.glob(further)) if path.is_file())


def adapters(folders: Mapping[str, str]) -> dict[str, str]:
    """sha256 of the weights and settings of LoRA adapters, by their names.

    Raises:
        LaunchError: If a folder holds none.
    """
    found = {}
    for name, folder in sorted(folders.items()):
        place = Path(folder)
        if not (place / "adapter_model.safetensors").is_file():
            raise LaunchError(
                f"no adapter_model.safetensors in {folder}: not a LoRA adapter, or one in a "
                f"format that is not loaded"
            )
        if (pickled := place / "new_embeddings.bin").exists():
            raise LaunchError(f"{pickled} would be loaded, and may run code then; remove it")
        files = {*place.glob("adapter_*"), *_memory.weight_files(place), *_readable(place)}
        found[f"adapter.{name}"] = digest(sorted(files), place)
    return found


def _bundled_names() -> list[str]:
    return sorted(path.parent.name for path in _BUNDLED.glob("*/config.json"))


def _offered() -> str:
    return ", ".join(BUNDLED_PREFIX + name for name in _bundled_names()) or "(none is bundled)"


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise LaunchError(f"no config.json in {folder}: not a model folder")
    files = _memory.weight_files(folder)
    if not files:
        raise LaunchError(f"no *.safetensors in {folder}; other weight formats are not loaded")
    for path in files:
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise LaunchError(f"{path} is a git-lfs pointer, not weights: run git lfs pull")
    _memory.check(folder)
    return folder


def _existing(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def digest(files: list[Path], folder: Path) -> str:
    """sha256 over names in a folder and contents; "none" for no files."""
    if not files:
        return _NONE
    lines = [f"{path.relative_to(folder).as_posix()} {_file_digest(path)}" for path in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def content_digest(files: Sequence[Path]) -> str:
    """sha256 of contents in this order, whatever the files are called; of one file its own."""
    hashes = [_file_digest(path) for path in files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    # Of what a link leads to.
    status = path.stat()
    return _hash_file(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@cache
def _hash_file(path: Path, *state: int) -> str:  # noqa: ARG001 (part of the cache key)
    return sha256_of(path)
