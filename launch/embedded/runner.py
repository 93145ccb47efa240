"""Forward passes of one model over rows of different lengths, checked against a plain pass.

Rows never see each other: each has its own positions and its own row of an explicit mask, padding
lies to the right of what a row holds, and a padded place is never attended to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from launch.embedded.features import Watcher
from launch.embedded.jobs import See
from launch.embedded.layout import LayerShape, Layout, Pool, PrefillCache, StepCache
from launch.embedded.model import PackedLinear, weight_bytes
from orchestrator.errors import LaunchError

_CHECK_TOKENS = 24
_MOST_ATTENTION = 1.01


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one row to compute.

    Attributes:
        ids: The tokens.
        positions: Their places in the sequence.
        prefix: Keys and values of all tokens before them, shape `(n, layout.width)`, or None.
        tree: Which of the last `m` tokens each of them sees, bool of shape `(m, m)`; the tokens
            before these are seen by all. None for plain text.
    """

    ids: Sequence[int]
    positions: Sequence[int]
    prefix: Tensor | None = None
    tree: Tensor | None = None


Prefilled = tuple[Tensor, PrefillCache]
"""What `Runner.logits` turns to logits, shape `(rows, time, any)`; and fresh keys and values."""


class Runner:
    """Forward passes of one causal language model of `transformers`.

    Attributes:
        kernels: Kinds of its matrix products, `packed` (oneDNN's layout) or `plain`: their numbers
            differ by rounding.

    Args:
        model: In evaluation mode, on its device.

    Raises:
        LaunchError: Where passes over separate rows don't give what the model gives for
            a plain text.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401 (transformers' classes share no useful type)
        self.model = model
        parameter: Tensor = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.like = parameter.detach().new_empty(0)
        is_packed = any(isinstance(module, PackedLinear) for module in model.modules())
        self.kernels = "packed" if is_packed else "plain"
        self._body = getattr(model, "base_model", None)
        self._head = model.get_output_embeddings()
        self.vocabulary: int = model.config.get_text_config().vocab_size
        self.layout = self._find_layout()
        # Some models change logits behind their last layer; the check below would miss a change
        # that only large logits meet.
        capped = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
        self._whole = self._body in {None, model} or self._head is None or bool(capped)
        self._check()
        self.watcher = Watcher(model, self.layout.layers)
        self.unwatchable = self._check_watched()

    @property
    def widest(self) -> int:
        """Numbers of a token between the widest layers."""
        config = self.model.config.get_text_config()
        inner = getattr(config, "intermediate_size", None)
        return inner if isinstance(inner, int) else 4 * int(config.hidden_size)

    @property
    def token_bytes(self) -> int:
        """Memory of one token's keys and values."""
        return self.layout.width * self.like.element_size()

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights."""
        return weight_bytes(self.model)

    def watched(self, chunk: Chunk, see: See) -> Prefilled:
        """Compute one chunk like `prefill`, and hand its attention weights to `see`."""
        with self.watcher.watch(see):
            return self.prefill([chunk])

    def prefill(self, chunks: Sequence[Chunk]) -> Prefilled:
        """Compute the chunks together; row `i` of the result is chunk `i`, padded to the right."""
        longest = max(len(chunk.ids) for chunk in chunks)
        ids = torch.zeros((len(chunks), longest), dtype=torch.long)
        positions = torch.zeros_like(ids)
        for row, chunk in enumerate(chunks):
            ids[row, : len(chunk.ids)] = torch.tensor(chunk.ids)
            positions[row, : len(chunk.ids)] = torch.tensor(chunk.positions)
        prefix, known = self._prefixes(chunks)
        cache = PrefillCache(self.layout, prefix)
        mask = _prefill_mask(chunks, longest, known).to(self.device)
        states = self._forward(ids.to(self.device), positions.to(self.device), mask, cache)
        return states, cache

    def step(self, pool: Pool, ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Feed one token to each of the first `len(ids)` rows of a pool.

        Returns:
            Logits of the tokens after them, float32, shape `(rows, vocabulary)`.
        """
        tokens = torch.tensor(ids, device=self.device)[:, None]
        places = torch.tensor(positions, device=self.device)
        longest = max(positions) + 1
        cache = StepCache(pool, places, longest)
        seen = torch.arange(longest, device=self.device) <= places[:, None]
        states = self._forward(tokens, places[:, None], seen[:, None, None], cache)
        return self.logits(states[:, -1])

    def logits(self, states: Tensor) -> Tensor:
        """Logits in float32 of states of shape `(n, any)`."""
        if self._whole:
            return states.float()
        head: Tensor = self._head(states)
        return head.float()

    def _forward(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: object) -> Tensor:
        # Eager attention adds the mask; and attention is eager while it is watched.
        if getattr(self.model.config, "_attn_implementation", "") == "eager":
            hidden = torch.zeros(mask.shape, dtype=self.dtype, device=self.device)
            mask = hidden.masked_fill_(~mask, torch.finfo(self.dtype).min)
        body: Any = self.model if self._whole else self._body
        output = body(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        states: Tensor = output.logits if self._whole else output.last_hidden_state
        return states

    def _prefixes(self, chunks: Sequence[Chunk]) -> tuple[Tensor | None, list[int]]:
        known = [0 if chunk.prefix is None else chunk.prefix.shape[0] for chunk in chunks]
        if not any(known):
            return None, known
        joined = self.like.new_zeros((len(chunks), max(known), self.layout.width))
        for row, chunk in enumerate(chunks):
            if chunk.prefix is not None:
                joined[row, : known[row]] = chunk.prefix
        return joined, known

    @torch.inference_mode()
    def _find_layout(self) -> Layout:
        cache = PrefillCache(Layout({}), None)
        ids = torch.zeros((1, 2), dtype=torch.long, device=self.device)
        name = type(self.model).__name__
        try:
            self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            layers = {
                layer: LayerShape(keys.shape[2], keys.shape[3], values.shape[3])
                for layer, (keys, values) in cache.fresh.items()
            }
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
            text = f"{name} does not keep plain keys and values in its cache: {error}"
            raise LaunchError(text) from error
        if not layers:
            raise LaunchError(f"{name} keeps no keys and values in its cache")
        return Layout(layers)

    @torch.inference_mode()
    def _check(self) -> None:
        generator = torch.Generator().manual_seed(0)
        vocabulary = self.model.get_input_embeddings().weight.shape[0]
        drawn = torch.randint(0, vocabulary, (_CHECK_TOKENS,), generator=generator)
        ids: list[int] = drawn.tolist()
        plain = self.model(input_ids=drawn[None].to(self.device), use_cache=False).logits[0].float()
        allowed = self._allowed(plain)
        found = ""
        for whole in (self._whole, True):
            self._whole = whole
            try:
                worst = self._distance(ids, plain)
            except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
                found = f"{type(error).__name__}: {error}"
                continue
            if worst <= allowed:
                return
            found = f"largest difference of a logit {worst:.3g}, allowed {allowed:.3g}"
        name = type(self.model).__name__
        text = f"{name} can't be computed over rows of different lengths ({found})"
        raise LaunchError(text)

    def _allowed(self, plain: Tensor) -> float:
        """Return the allowed distance of a logit from that of a plain pass."""
        allowed = 1e-3 if self.dtype == torch.float32 else 0.1
        return allowed * max(1.0, float(plain.abs().max()))

    @torch.inference_mode()
    def _check_watched(self) -> str:
        """Return why attention can't be watched; empty where it can be and changes no logit."""
        ids = list(range(_CHECK_TOKENS))
        half = len(ids) // 2
        plain, cache = self.prefill([Chunk(ids, range(len(ids)))])
        flat = self.layout.flatten(cache.fresh, 0, half)
        sums: list[Tensor] = []
        chunk = Chunk(ids[half:], range(half, len(ids)), flat)
        try:
            watched, _ = self.watched(
                chunk, lambda _, weights: sums.append(weights.float().sum(-1))
            )
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        except LaunchError as error:
            return str(error)
        expected = self.logits(plain[0, half:])
        worst = float((self.logits(watched[0]) - expected).abs().max())
        most = max(float(total.max()) for total in sums)
        if not worst <= self._allowed(expected) or not most <= _MOST_ATTENTION:
            return f"largest difference of a logit {worst:.3g}, largest sum of a row {most:.3g}"
        return ""

    def _distance(self, ids: list[int], plain: Tensor) -> float:
        """Largest difference to a plain pass: padded, after a prefix, as a tree, and decoding."""
        half, end = len(ids) // 2, len(ids) - 2
        _, cache = self.prefill([Chunk(ids[:half], range(half))])
        flat = self.layout.flatten(cache.fresh, 0, half)
        tree = torch.tensor([[True, False], [True, True]])
        rows = [
            Chunk(ids[half:], range(half, len(ids)), flat),
            Chunk(ids[:5], range(5)),
            Chunk(ids[half:end], range(half, end), flat, tree),
        ]
        both, _ = self.prefill(rows)
        pool = Pool(self.layout, len(ids), self.like)
        pool.reserve(2)
        pool.write(0, 0, flat)
        pool.write(1, 0, flat[:3])
        stepped = self.step(pool, [ids[half], ids[3]], [half, 3])
        logits = [self.logits(states) for states in both]
        differences = (
            logits[0][: len(ids) - half] - plain[half:],
            logits[1][:5] - plain[:5],
            logits[2][: end - half] - plain[half:end],
            stepped - plain[[half, 3]],
        )
        worst = max(float(difference.abs().max()) for difference in differences)
        return worst if worst == worst else float("inf")


def _prefill_mask(chunks: Sequence[Chunk], longest: int, known: Sequence[int]) -> Tensor:
    """Return the keys each token sees: bool, shape `(rows, 1, longest, max(known) + longest)`."""
    before = max(known)
    mask = torch.zeros((len(chunks), 1, longest, before + longest), dtype=torch.bool)
    mask[..., before:] = torch.ones((longest, longest), dtype=torch.bool).tril()
    if before:
        held = torch.arange(before) < torch.tensor(known)[:, None]
        mask[..., :before] = held[:, None, None]
    for row, chunk in enumerate(chunks):
        if chunk.tree is not None:
            start, stop = len(chunk.ids) - chunk.tree.shape[0], len(chunk.ids)
            mask[row, 0, start:stop, before + start : before + stop] = chunk.tree
    return mask
