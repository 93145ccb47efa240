"""Whatever is read while a model is loaded is in its identity, however its settings name it.

Two oracles. One records which files are opened, by Python and by the two libraries in Rust. The
other spoils one file of the folder after the other: what then gives other numbers has another
identity, whoever opened it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors
import tokenizers
import torch
import transformers.modeling_utils

from launch import _memory, _weights
from launch.embedded.engine import Settings
from launch.embedded.served import load

_opened: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | Path):
        _opened.append(str(arguments[0]))


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Record the paths of files that are opened, while the block runs."""
    if not getattr(_hook, "is_added", False):
        # For good: there is no way to take one back.
        sys.addaudithook(_hook)
        _hook.is_added = True  # type: ignore[attr-defined]

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(path: Any, *rest: Any, **more: Any) -> Any:
            if _opened is not None:
                _opened.append(str(path))
            return function(path, *rest, **more)

        return noted

    real = tokenizers.Tokenizer.from_file
    monkeypatch.setattr(tokenizers.Tokenizer, "from_file", staticmethod(noting(real)))
    for module in (safetensors, transformers.modeling_utils):
        monkeypatch.setattr(module, "safe_open", noting(safetensors.safe_open))

    @contextmanager
    def recording() -> Iterator[list[str]]:
        global _opened
        found: list[str] = []
        _opened = found
        try:
            yield found
        finally:
            _opened = None

    return recording


def numbers(folder: Path) -> object:
    """All that is answered from: tokens, templates, stops and logits; or that it can't be."""
    try:
        _weights.resolve(str(folder))
        served = load("m", str(folder), Settings())
    except Exception:  # noqa: BLE001 (the libraries in Rust raise no other)
        return "refused"
    try:
        tokens = served.tokens
        ids = tokens.encode("hello world, which is better?", special=True)
        with torch.inference_mode():
            logits = served.runner.model(input_ids=torch.tensor([ids]), use_cache=False).logits
        tokenizer = tokens._tokenizer
        return (
            ids,
            logits.numpy().tobytes(),
            json.dumps(tokenizer.chat_template),
            sorted(tokens.eos),
            sorted(tokens.special),
        )
    finally:
        served.engine.close()


def change(path: Path, **fields: object) -> None:
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | fields).encode())


def versioned_config(folder: Path) -> None:
    shutil.copy(folder / "config.json", folder / "config.4.0.0.json")
    change(folder / "config.4.0.0.json", rms_norm_eps=0.1)
    change(folder / "config.json", configuration_files=["config.json", "config.4.0.0.json"])


def versioned_tokenizer(folder: Path) -> None:
    shutil.copy(folder / "tokenizer.json", folder / "tokenizer.4.0.json")
    change(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.json"])


def further_templates(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool.jinja").write_text("{{ messages }}")


def legacy_files(folder: Path) -> None:
    (folder / "added_tokens.json").write_text('{"<extra>": 319}')
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<s>"}')


def shards(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    names = [name for name, *_ in _memory.tensors(folder / "model-1.safetensors")]
    listed = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-1.safetensors")}
    (folder / _memory.INDEX).write_text(json.dumps(listed))


def links(folder: Path) -> None:
    elsewhere = folder.parent / "blobs"
    elsewhere.mkdir()
    for path in folder.iterdir():
        path.rename(elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)


def another_class(folder: Path) -> None:
    change(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary["vocab"]))
    (folder / "merges.txt").write_text(
        "\n".join(" ".join(pair) for pair in vocabulary["merges"]) + "\n"
    )


def no_tokenizer_json(folder: Path) -> None:
    another_class(folder)
    (folder / "tokenizer.json").unlink()


def as_saved(folder: Path) -> None:
    """Leave it as it is."""


VARIANTS = [
    as_saved,
    versioned_config,
    versioned_tokenizer,
    further_templates,
    legacy_files,
    shards,
    links,
    another_class,
    no_tokenizer_json,
]


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path, variant: Callable[[Path], None]) -> Path:
    found = shutil.copytree(folders["plain"], tmp_path / "model")
    variant(found)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_file_that_is_opened_is_in_the_identity(
    folder: Path, opens: Callable[[], Any]
) -> None:
    parts = _weights.deciding_files(_weights.resolve(str(folder)))
    counted = {path.resolve() for files in parts.values() for path in files}
    # Compared with what the files say.
    counted.add((folder / _memory.INDEX).resolve())
    with opens() as found:
        assert numbers(folder) != "refused"
    # Of the folder, and where its links lead.
    opened = {
        path for name in found if (path := Path(name).resolve()).is_relative_to(folder.parent)
    }
    assert {path.name for path in opened} >= {"config.json", "generation_config.json"}
    assert opened <= counted


@pytest.mark.parametrize(
    "variant", [versioned_config, versioned_tokenizer, further_templates, another_class]
)
def test_other_numbers_have_another_identity(folder: Path) -> None:
    before, identity = numbers(folder), _weights.identity(str(folder))
    assert before != "refused"
    n_changed = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        for spoilt in (content[: len(content) // 2], content.replace(b"1", b"2")):
            path.write_bytes(spoilt)
            after = numbers(folder)
            if after not in (before, "refused"):
                n_changed += 1
                assert _weights.identity(str(folder)) != identity, path.name
        path.write_bytes(content)
    assert n_changed > 0
    assert numbers(folder) == before
