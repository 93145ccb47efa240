"""Changes to a model that is loaded: packed layers, heads that rate, copies that are worse."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor, nn

from orchestrator.errors import LaunchError

# Linear layers in the layout of the CPU's matrix kernels.
#
# `torch` multiplies float32 matrices by MKL, which on processors of other makers than Intel leaves
# half of their width unused, and it lays out weights anew in each product. Here each layer's
# weights are laid out once, for oneDNN, and the plain weights are dropped layer by layer. Numbers
# differ from those of the plain layers by rounding only, which is checked when a model is loaded.


_USUAL_ROWS: Final = 32
"""Rows of a product that the layout is chosen for; others use it too."""
_CHECK_TOKENS: Final = 24


class PackedLinear(nn.Module):
    """A linear layer whose weights only oneDNN can read.

    Args:
        linear: Layer to take weights and bias from; it is left without weights.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _USUAL_ROWS)  # noqa: SLF001 (what torch.compile calls)
        bias: Tensor | None = getattr(linear, "bias", None)
        self._bias = None if bias is None else bias.detach()
        linear.register_parameter("weight", None)

    def forward(self, states: Tensor) -> Tensor:  # noqa: D102
        product: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 (as above)
            states, self._packed, self._bias, "none", [], ""
        )
        return product


def can_pack(model: nn.Module) -> bool:
    """Return whether the layers of a model can be packed on this machine."""
    parameter = next(model.parameters())
    return (
        parameter.device.type == "cpu"
        and parameter.dtype in (torch.float32, torch.bfloat16)
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and (parameter.dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    )


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of all weights, packed ones included."""
    plain = sum(one.numel() * one.element_size() for one in model.parameters())
    size = next(model.parameters()).element_size()
    packed = (one for one in model.modules() if isinstance(one, PackedLinear))
    return plain + sum(one.in_features * one.out_features * size for one in packed)


@torch.inference_mode()
def pack(model: Any) -> bool:  # noqa: ANN401 (transformers' classes share no useful type)
    """Pack the linear layers of a causal language model of `transformers`.

    Returns:
        Whether the model gives what it gave before. False leaves a model that is of no use: load it
        again and serve it as it is.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (1, _CHECK_TOKENS), generator=generator)
    plain = model(input_ids=ids, use_cache=False).logits.float()
    try:
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear:
                    setattr(parent, name, PackedLinear(child))
        packed = model(input_ids=ids, use_cache=False).logits.float()
    except (TypeError, ValueError, AttributeError, RuntimeError):
        return False
    # Weights are views of the mapped file, which stays in memory as long as one of them is left.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    allowed = 1e-4 if next(model.parameters()).dtype == torch.float32 else 0.1
    worst = float((packed - plain).abs().max())
    return worst <= allowed * max(1.0, float(plain.abs().max()))


_CLASSES = "ForSequenceClassification"


def rates(folder: Path) -> bool:
    """Return whether the weights in a folder are those of a reward model.

    Raises:
        ValueError: If its config.json is no JSON.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = config.get("architectures") if isinstance(config, dict) else None
    return isinstance(names, list) and any(str(name).endswith(_CLASSES) for name in names)


class Rating(nn.Module):
    """A sequence classifier of `transformers`, with its head's outputs at every place.

    The classifier itself gives those of the last token alone that is no padding, which it looks for
    by its id. A server knows where a conversation ends, and reads its last token, as vLLM does.

    Args:
        classifier: The model; its head must be the linear layer `score`.

    Raises:
        LaunchError: If it is of another form.
    """

    def __init__(self, classifier: Any) -> None:  # noqa: ANN401 (transformers' classes share no useful type)
        super().__init__()
        head, body = getattr(classifier, "score", None), getattr(classifier, "base_model", None)
        if not isinstance(head, nn.Linear) or body in {None, classifier}:
            name = type(classifier).__name__
            raise LaunchError(f"{name} is not a decoder with a linear head `score`")
        self.config = classifier.config
        self.base_model = body
        self.score: nn.Module = head

    def get_output_embeddings(self) -> nn.Module:
        """Return the head."""
        return self.score

    def get_input_embeddings(self) -> Any:  # noqa: ANN401 (as above)
        """Return the embeddings of tokens."""
        return self.base_model.get_input_embeddings()

    def forward(self, **given: Any) -> SimpleNamespace:  # noqa: ANN401 (as above)
        """Return the outputs at all places as `logits`, shape `(rows, time, outputs)`."""
        logits: Tensor = self.score(self.base_model(**given).last_hidden_state)
        return SimpleNamespace(logits=logits)


# Copies of a model that are worse by a known degree, to test evaluations against.
#
# Noise in the weights and layers left out make a model worse without making it another model: the
# order of copies by quality is known beforehand, in real language too, where no answer key says it.


def add_noise(model: nn.Module, scale: float, seed: int) -> None:
    """Add Gaussian noise to every weight matrix, in place.

    The noise of a matrix depends on the seed and the matrix's name alone: neither the device nor
    the other matrices change it. With one seed, a larger scale is more of the same noise.

    Args:
        model: Tied matrices are changed once. Vectors (norms, biases) are not changed.
        scale: Standard deviation of the noise, as a multiple of the matrix's own.
        seed: Of the noise.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim < 2:
                continue
            digest = blake2b(f"{seed}/{name}".encode(), digest_size=7).digest()
            source = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
            noise = torch.randn(weight.shape, generator=source, dtype=torch.float32)
            noise *= scale * weight.float().std().item()
            weight.add_(noise.to(weight.device, weight.dtype))


def leave_out_layers(model: Any, left_out: Sequence[int]) -> None:  # noqa: ANN401 (any architecture of transformers)
    """Take layers out of a decoder, in place; those that remain are numbered anew.

    Args:
        model: A causal language model of transformers whose decoder lists `layers`.
        left_out: Numbers of layers, from 0.

    Raises:
        LaunchError: If there is no such layer, none would remain, or the architecture
            does not list its layers in the usual place.
    """
    decoder = model.get_decoder()
    layers: Any = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not all(
        hasattr(getattr(layer, "self_attn", None), "layer_idx") for layer in layers
    ):
        raise LaunchError(
            f"layers of {type(model).__name__} cannot be left out: its decoder has no list "
            "`layers` of blocks with `self_attn`"
        )
    unknown = sorted(set(left_out) - set(range(len(layers))))
    if unknown:
        raise LaunchError(
            f"skip_layers: no layer {unknown[0]}; the model has layers 0 to {len(layers) - 1}"
        )
    kept: list[Any] = [layer for index, layer in enumerate(layers) if index not in left_out]
    if not kept:
        raise LaunchError("skip_layers: at least one layer must remain")
    for number, layer in enumerate(kept):
        layer.self_attn.layer_idx = number
    decoder.layers = nn.ModuleList(kept)
    config = model.config.get_text_config()
    config.num_hidden_layers = len(kept)
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = [kind for index, kind in enumerate(kinds) if index not in left_out]
