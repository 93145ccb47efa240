"""A LoRA adapter on a real vLLM, against a float32 forward pass of the merged weights."""

import json
import shutil

import numpy as np
import pytest

from backends import vllm as backend
from launch import vllm
from orchestrator.ask import Ask, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Generation, Message, Sampling, Scored
from orchestrator.serving import ServedModel
from tests.conformance.reference import Reference
from tests.conftest import BUNDLED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.vllm,
    pytest.mark.timeout(600),
]

BASE = BUNDLED / "novice"
RANK, ALPHA = 4, 8
PROMPT = (Message("user", "Sort: d a c b"),)


def write_adapter(folder, rng):
    """A PEFT adapter of random matrices; what it adds to the weights, by their names."""
    from safetensors.numpy import save_file  # noqa: PLC0415 (not everywhere)

    config = json.loads((BASE / "config.json").read_text())
    size = config["hidden_size"]
    tensors, merged = {}, {}
    for layer in range(config["num_hidden_layers"]):
        for name in ("q_proj", "v_proj"):
            part = f"model.layers.{layer}.self_attn.{name}"
            down = rng.normal(0, 0.1, (RANK, size)).astype(np.float32)
            up = rng.normal(0, 0.1, (size, RANK)).astype(np.float32)
            tensors[f"base_model.model.{part}.lora_A.weight"] = down
            tensors[f"base_model.model.{part}.lora_B.weight"] = up
            merged[f"{part}.weight"] = up @ down * (ALPHA / RANK)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA,
        "lora_dropout": 0.0, "bias": "none", "target_modules": ["q_proj", "v_proj"],
        "base_model_name_or_path": "bundled",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return merged


def merge(folder, added):
    """The bundled model with the adapter's weights added, as a folder of its own."""
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    shutil.copytree(BASE, folder)
    weights = {name: one.float() for name, one in load_file(BASE / "model.safetensors").items()}
    for name, delta in added.items():
        weights[name] += torch.from_numpy(delta)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return Reference(folder)


async def test_vllm_answers_by_the_adapter_under_the_models_own_name(tmp_path):
    merged = write_adapter(tmp_path / "adapter", np.random.default_rng(0))
    tuned, base = merge(tmp_path / "merged", merged), Reference(BASE)
    config = vllm.Config(
        dtype="float32", max_model_len=512, enforce_eager=True, cpu_kv_cache_gb=1, cpu_threads=1,
        lora_modules={"tuned": str(tmp_path / "adapter")},
        extra_args=("--max-lora-rank", "8"),
    )  # fmt: skip
    models = (ServedModel("tuned", str(BASE)),)
    server = await vllm.Launch(config).start(models, tmp_path / "log")
    try:
        endpoint = Endpoint(base_url=server.base_url, model="tuned", api_key=server.api_key)
        speaker = backend.Kind(backend.Config()).connect(endpoint)
        ask = Ask().generate("tuned", PROMPT, Sampling(max_tokens=12))
        drawn = await speaker.generate(ask, 0)
        assert isinstance(drawn, Generation)
        assert drawn.token_ids is not None
        ids = tuple(int(one) for one in drawn.token_ids)
        scored = await speaker.score(ScoreAsk("tuned", PROMPT, ids, drawn.text))
        assert isinstance(scored, Scored)
        await speaker.close()
    finally:
        await server.stop()
    expected = tuned.scores(tuned.prompt(PROMPT), ids)
    assert drawn.logprobs is not None
    np.testing.assert_allclose(drawn.logprobs, expected, atol=1e-4)
    np.testing.assert_allclose(scored.logprobs, expected, atol=1e-4)
    assert np.abs(base.scores(base.prompt(PROMPT), ids) - expected).max() > 0.1
