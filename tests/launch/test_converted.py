"""Model folders made of GGUF files: numbers, tokenizers, damage, locks and interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from launch import _weights
from tests.launch.gguf_files import model, write

KINDS = {
    "llama": {},
    "llama tied": {"tie_word_embeddings": True},
    "llama one group": {"num_key_value_heads": 4, "rope_theta": 1e6},
    "llama wide heads": {"head_dim": 32},
    "qwen2": {"rope_theta": 1e6},
    "qwen2 tied": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32, "rope_theta": 1e6},
    "qwen3 tied": {"tie_word_embeddings": True, "head_dim": 16},
}
Q = gguf.GGMLQuantizationType


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


@torch.inference_mode()
def logits(made: Any) -> Any:
    ids = torch.randint(0, made.config.vocab_size, (2, 300), generator=torch.manual_seed(3))
    return made(input_ids=ids).logits


@pytest.mark.parametrize("name", KINDS)
def test_logits_are_those_of_the_model_that_was_written(name: str, tmp_path: Path) -> None:
    made = model(name.split()[0], **KINDS[name])
    folder = _weights.folder_now(str(write(tmp_path / "m.gguf", made)))
    assert (logits(loaded(folder)) - logits(made)).abs().max() <= 1e-5


@pytest.mark.parametrize("kind", [Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0])
def test_quantised_weights_are_those_that_ggml_reads(
    kind: gguf.GGMLQuantizationType, tmp_path: Path
) -> None:
    made = model("qwen2")
    file = write(tmp_path / "m.gguf", made, quantise=kind)
    found = load_file(_weights.folder_now(str(file)) / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    by_name = {names.get_name(name, (".weight", ".bias")): array for name, array in found.items()}
    for tensor in gguf.GGUFReader(file).tensors:
        known = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(by_name[tensor.name], known)
