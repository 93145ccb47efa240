"""Linear layers in the layout of the CPU's matrix kernels.

`torch` multiplies float32 matrices by MKL, which on processors of other makers than Intel leaves
half of their width unused, and it lays out weights anew in each product. Here each layer's weights
are laid out once, for oneDNN, and the plain weights are dropped layer by layer. Numbers differ from
those of the plain layers by rounding only, which is checked when a model is loaded.
"""

from __future__ import annotations

import platform
from typing import Any, Final

import torch
from torch import Tensor, nn

_PACKED_DTYPES: Final = (torch.float32, torch.bfloat16)
_MACHINES: Final = ("x86_64", "AMD64")
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
        and parameter.dtype in _PACKED_DTYPES
        and platform.machine() in _MACHINES
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and (parameter.dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    )


def is_packed(model: nn.Module) -> bool:
    """Return whether layers of a model are packed."""
    return any(isinstance(module, PackedLinear) for module in model.modules())


def model_bytes(model: nn.Module) -> int:
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
