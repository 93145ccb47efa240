"""Models that can be served: verdicts of the check at loading on other architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from launch.embedded.engine import Settings
from launch.embedded.layout import Pool
from launch.embedded.runner import Chunk, Runner
from launch.embedded.served import _context, load
from orchestrator.errors import LaunchError

SMALL: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def model(kind: str, attention: str = "sdpa", **fields: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **fields})
    found = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return found.float().eval()


KINDS = [
    ("Qwen2", {"num_key_value_heads": 2}),
    ("Mistral", {"num_key_value_heads": 2, "sliding_window": 64}),
    ("GPTNeoX", {}),
    ("Gemma2", {"num_key_value_heads": 2, "head_dim": 16, "attention": "eager"}),
    ("Mixtral", {"num_key_value_heads": 2, "num_local_experts": 4}),
]


@pytest.mark.parametrize(("kind", "fields"), KINDS, ids=[kind for kind, _ in KINDS])
@torch.inference_mode()
def test_other_architectures_pass_the_check(kind: str, fields: dict[str, Any]) -> None:
    runner = Runner(model(kind, **fields))
    ids = list(range(10, 50))
    plain = runner.model(input_ids=torch.tensor([ids])).logits[0]
    pool = Pool(runner.layout, 64, runner.like)
    pool.reserve(1)
    _, cache = runner.prefill([Chunk(ids[:-1], range(len(ids) - 1))])
    pool.write(0, 0, runner.layout.flatten(cache.fresh, 0, len(ids) - 1))
    stepped = runner.step(pool, ids[-1:], [len(ids) - 1])
    assert torch.allclose(stepped[0], plain[-1], atol=1e-4)


def test_a_model_without_keys_and_values_is_refused() -> None:
    config = transformers.MambaConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, bos_token_id=1, eos_token_id=2
    )
    mamba = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(LaunchError, match="MambaForCausalLM keeps no keys and values"):
        Runner(mamba)


def test_a_model_that_ignores_positions_is_refused() -> None:
    config = transformers.BloomConfig(
        vocab_size=128, hidden_size=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    )
    bloom = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with pytest.raises(LaunchError, match="BloomForCausalLM"):
        Runner(bloom.eval())


def test_a_model_that_can_not_run_at_all_is_refused() -> None:
    with pytest.raises(LaunchError, match="Qwen2ForCausalLM"):
        Runner(model("Qwen2", num_key_value_heads=32))


def test_a_model_whose_numbers_are_not_finite_is_refused() -> None:
    broken = model("Qwen2", num_key_value_heads=2)
    with torch.no_grad():
        broken.lm_head.weight[5, 5] = float("nan")
    with pytest.raises(LaunchError):
        Runner(broken)


def test_sequences_stay_within_a_sliding_window() -> None:
    config = transformers.MistralConfig(**SMALL, sliding_window=64)
    assert _context(config, 0) == 64
    assert _context(config, 32) == 32
    assert _context(transformers.LlamaConfig(**SMALL), 0) == 256


def test_a_place_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"no config\.json in "):
        load("x", str(tmp_path), Settings())


def test_a_broken_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(LaunchError, match="cannot be loaded"):
        load("x", str(tmp_path), Settings())
