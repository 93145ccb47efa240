"""Packed layers give the numbers of a plain pass, and models that can't be packed are served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from launch.embedded import served
from launch.embedded.engine import Settings
from launch.embedded.model import PackedLinear, can_pack, pack
from launch.embedded.served import Served, load
from tests.launch.embedded.test_architectures import model
from tests.launch.embedded.tiny import build

IDS = torch.tensor([list(range(10, 60))])


class ReadsWeights(transformers.LlamaForCausalLM):
    """A model that multiplies by the weights of a layer without calling the layer."""

    def forward(self, *args: Any, **fields: Any) -> Any:
        output = super().forward(*args, **fields)
        output.logits = output.logits + 0 * self.lm_head.weight.sum()
        return output


def reads_weights() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return ReadsWeights(config).float().eval()


def plain_layers(found: nn.Module) -> int:
    return sum(type(layer) is nn.Linear for layer in found.modules())


@torch.inference_mode()
def test_a_served_model_is_packed_and_gives_the_numbers_of_its_weights(
    bos: Served, folders: dict[str, Path]
) -> None:
    direct: Any = transformers.AutoModelForCausalLM.from_pretrained(folders["bos"])
    expected = direct.eval()(input_ids=IDS).logits.log_softmax(-1)
    found = bos.runner.model(input_ids=IDS).logits.log_softmax(-1)
    assert torch.allclose(found, expected, atol=1e-5)
    assert plain_layers(bos.runner.model) == (0 if can_pack(direct) else plain_layers(direct))


@pytest.mark.parametrize("kind", ["Qwen2", "Mistral"])
@torch.inference_mode()
def test_biases_and_grouped_heads_are_kept(kind: str) -> None:
    found = model(kind, num_key_value_heads=2)
    if not can_pack(found):
        return
    for name, parameter in found.named_parameters():
        if name.endswith("bias"):
            parameter.normal_()
    expected = found(input_ids=IDS).logits
    assert pack(found)
    assert plain_layers(found) == 0
    assert torch.allclose(found(input_ids=IDS).logits, expected, atol=1e-5)


def test_plain_weights_are_dropped() -> None:
    layer = nn.Linear(8, 16)
    if not can_pack(layer):
        return
    inputs = torch.randn(3, 8)
    with torch.inference_mode():
        expected = layer(inputs)
        packed = PackedLinear(layer)
        assert torch.allclose(packed(inputs), expected, atol=1e-6)
    assert layer.weight is None
    assert not list(packed.parameters())


def test_a_model_that_reads_its_layers_weights_can_not_be_packed() -> None:
    assert not pack(reads_weights())


def test_a_model_that_can_not_be_packed_is_served_as_it_is(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fails(found: Any) -> bool:
        tried.append(found)
        found.lm_head = nn.Identity()
        return False

    monkeypatch.setattr(served, "can_pack", lambda _model: True)
    monkeypatch.setattr(served, "pack", fails)
    found = load("m", str(folders["bos"]), Settings())
    assert len(tried) == 1
    assert plain_layers(found.runner.model) > 0


def test_the_file_of_the_plain_weights_is_let_go(tmp_path: Path) -> None:
    maps = Path("/proc/self/maps")
    found = load("m", str(build(tmp_path / "m", seed=3, with_bos=True)), Settings())
    if maps.exists() and can_pack(found.runner.model):
        assert str(tmp_path) not in maps.read_text(encoding="utf-8")
