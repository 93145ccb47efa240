"""Attention weights of a pass, layer by layer.

Fast attention never has its weights in memory. So for the passes whose weights are wanted, and for
these only, the model is switched to its own eager attention, and a hook on each layer hands the
weights on before the next layer is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from launch.embedded.errors import UnsupportedModelError

See = Callable[[int, Tensor], None]
_MOST_WEIGHTS = 1 << 22
_COPIES = 5
"""Tensors of one layer's weights that eager attention and a reading have alive at a time."""
_NUMBER_BYTES = 4


class Watcher:
    """Watches the attention of one model of `transformers`.

    Args:
        model: As served.
        layers: Indices of its layers.
    """

    def __init__(self, model: Any, layers: Collection[int]) -> None:  # noqa: ANN401
        self._model = model
        self._layers = frozenset(layers)
        self._heads: int = model.config.get_text_config().num_attention_heads
        self._modules = [module for module in model.modules() if isinstance(_index(module), int)]

    def tokens(self, n_keys: int) -> int:
        """Return the number of tokens to compute at a time, so that memory is bounded."""
        return max(1, _MOST_WEIGHTS // (self._heads * n_keys))

    def n_bytes(self, n_keys: int) -> int:
        """Memory of the weights that are alive at a time, about."""
        return _COPIES * _NUMBER_BYTES * self._heads * self.tokens(n_keys) * n_keys

    @contextmanager
    def watching(self, see: See) -> Iterator[None]:
        """Hand each layer's weights of the passes inside to `see`.

        Raises:
            UnsupportedModelError: At the end, where a layer showed none.
        """
        seen: set[int] = set()

        def hook(module: Any, _inputs: object, output: object) -> None:  # noqa: ANN401
            # The weights among what an attention module gives: by row, head, token and key.
            parts = output[1:] if isinstance(output, tuple) else ()
            weights = next(
                (part for part in parts if isinstance(part, Tensor) and part.dim() == 4), None
            )
            if weights is not None:
                seen.add(_index(module))
                see(_index(module), weights)

        usual = self._model.config._attn_implementation  # noqa: SLF001 (transformers has no other)
        handles = [module.register_forward_hook(hook) for module in self._modules]
        try:
            self._model.set_attn_implementation("eager")
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._model.set_attn_implementation(usual)
        if seen != self._layers:
            name = type(self._model).__name__
            text = f"{name} shows the attention of {len(seen)} of {len(self._layers)} layers"
            raise UnsupportedModelError(text)


def _index(module: Any) -> Any:  # noqa: ANN401
    return getattr(module, "layer_idx", None)
