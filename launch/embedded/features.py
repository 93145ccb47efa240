"""Further readings of a scoring pass: of the whole vocabulary, and of attention.

They are what "Self-Evaluation of Large Language Model based on Glass-box Features" (SelfEval) reads
off a model, on correctly aligned positions, and as its released code has them (`compat_...`); the
names are told in `orchestrator.records.Scored`. Each is reduced to numbers as it is met: no logits
and no attention weights are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from launch.embedded.jobs import Observer, See
from orchestrator.errors import LaunchError

# Attention weights of a pass, layer by layer.
#
# Fast attention never has its weights in memory. So for the passes whose weights are wanted, and
# for these only, the model is switched to its own eager attention, and a hook on each layer hands
# the weights on before the next layer is computed.


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
    def watch(self, see: See) -> Iterator[None]:
        """Hand each layer's weights of the passes inside to `see`.

        Raises:
            LaunchError: At the end, where a layer showed none.
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
            raise LaunchError(text)


def _index(module: Any) -> Any:  # noqa: ANN401
    return getattr(module, "layer_idx", None)


_COMPAT = "compat_"
_ATTENTION = "attention_entropy"
Values = list[float]


OBSERVERS: dict[str, Observer] = {
    # -sum_v p ln p, in nats; a token that can't come adds nothing.
    "entropy": lambda _, logprobs: torch.special.entr(logprobs.exp()).sum(-1),
    # Var_v(ln p), unbiased; what SelfEval's code calls "logprobs-variance".
    "vocab_logprob_var": lambda _, logprobs: logprobs.var(-1, correction=1),
    # mean_v(ln p * logit); what SelfEval's code calls "logprobs-entropy".
    "vocab_mean_logp_logit": lambda logits, logprobs: (logprobs * logits).mean(-1),
}
"""Features of each position, by name."""


@dataclass(slots=True)
class AttentionEntropy:
    """Sums -a ln a over what each head of each layer pays from scored tokens to the prompt's.

    Attributes:
        n_prompt: Tokens of the prompt, I.
        sums: By layer: a float64 sum for each head, shape (heads,).
    """

    n_prompt: int
    sums: dict[int, Tensor] = field(default_factory=dict)

    def see(self, layer: int, weights: Tensor) -> None:
        """Take one layer's weights of some scored tokens, shape (1, heads, tokens, keys)."""
        paid = weights[0, :, :, : self.n_prompt].float()
        added = torch.special.entr(paid).sum(-1).double().sum(-1)
        known = self.sums.get(layer)
        self.sums[layer] = added if known is None else known + added

    def values(self) -> list[Values]:
        """By layer and head, divided by I; nothing where no token was scored."""
        return [(self.sums[layer] / self.n_prompt).tolist() for layer in sorted(self.sums)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Features that a request asks for.

    Attributes:
        names: As asked.
        observers: What they need of each row of logits, by name.
        attention: Where attention is wanted.
    """

    names: tuple[str, ...] = ()
    observers: Mapping[str, Observer] = field(default_factory=dict)
    attention: AttentionEntropy | None = None

    @classmethod
    def of(cls, names: Sequence[str], n_prompt: int) -> Wanted:
        """Return the observers that `names` need, for a prompt of so many tokens."""
        plain = dict.fromkeys(name.removeprefix(_COMPAT) for name in names)
        observers = {name: OBSERVERS[name] for name in plain if name in OBSERVERS}
        attention = AttentionEntropy(n_prompt) if _ATTENTION in names else None
        return cls(tuple(names), observers, attention)

    @property
    def after_last(self) -> bool:
        """True if the distribution behind the last scored token is needed too."""
        return any(name.startswith(_COMPAT) for name in self.names)

    def reply(
        self, logprobs: Sequence[float], observations: dict[str, list[float]], n_scored: int
    ) -> dict[str, Values | list[Values]]:
        """The reply's `features`.

        Args:
            logprobs: Of the scored tokens and, where `after_last`, of the one that wraps around.
            observations: By observer, likewise.
            n_scored: How many tokens were scored.
        """
        rows = {**observations, "logprob": list(logprobs)}
        found: dict[str, Values | list[Values]] = {}
        for name in self.names:
            if name == _ATTENTION:
                found[name] = [] if self.attention is None else self.attention.values()
            else:
                first = int(name.startswith(_COMPAT))
                values = rows.get(name.removeprefix(_COMPAT), [])
                found[name] = values[first : first + n_scored]
        return found
