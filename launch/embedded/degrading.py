"""Copies of a model that are worse by a known degree, to test evaluations against.

Noise in the weights and layers left out make a model worse without making it another model: the
order of copies by quality is known beforehand, in real language too, where no answer key says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import torch
from torch import nn

from launch.embedded.errors import UnsupportedModelError


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
        UnsupportedModelError: If there is no such layer, none would remain, or the architecture
            does not list its layers in the usual place.
    """
    decoder = model.get_decoder()
    layers: Any = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not all(
        hasattr(getattr(layer, "self_attn", None), "layer_idx") for layer in layers
    ):
        raise UnsupportedModelError(
            f"layers of {type(model).__name__} cannot be left out: its decoder has no list "
            "`layers` of blocks with `self_attn`"
        )
    unknown = sorted(set(left_out) - set(range(len(layers))))
    if unknown:
        raise UnsupportedModelError(
            f"skip_layers: no layer {unknown[0]}; the model has layers 0 to {len(layers) - 1}"
        )
    kept: list[Any] = [layer for index, layer in enumerate(layers) if index not in left_out]
    if not kept:
        raise UnsupportedModelError("skip_layers: at least one layer must remain")
    for number, layer in enumerate(kept):
        layer.self_attn.layer_idx = number
    decoder.layers = nn.ModuleList(kept)
    config = model.config.get_text_config()
    config.num_hidden_layers = len(kept)
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = [kind for index, kind in enumerate(kinds) if index not in left_out]
