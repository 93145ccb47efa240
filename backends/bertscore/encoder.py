"""An encoder on this machine: token embeddings of texts, and BERTScore over them. Needs torch.

Each text is embedded once while it is in a bounded cache; equal token ids are one text, so that
equal texts have equal scores to the last bit.

Source: Zhang, Kishore, Wu, Weinberger and Artzi, "BERTScore" (arXiv 1904.09675), eqs. 3-5.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from backends._tokens import Cache
from orchestrator.disk.columnar import give_back
from orchestrator.errors import UsageError
from orchestrator.judgment.similarity import idf_weights
from orchestrator.records import PairScores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def precision_of(best: NDArray[np.float32], weights: Floats, starts: Ints) -> Floats:
    """BERTScore precision of every ordered pair of N texts.

    Args:
        best: Shape (T, N), the best match of each token in each text.
        weights: Shape (T,), of the tokens: 1, or idf; 0 for those that mark begin and end.
        starts: Shape (N,), where each text begins.

    Returns:
        Shape (N, N): in row h, column r the weighted mean over the tokens of text h of their best
        match in text r. Recall is its transpose. nan where a text's weights are all 0.
    """
    sums = np.add.reduceat(best * weights[:, None], starts, axis=0)
    total = np.add.reduceat(weights, starts)[:, None]
    result: Floats = np.full(sums.shape, math.nan)
    np.divide(sums, total, out=result, where=total > 0)
    return result


# Padded tokens that are embedded in one pass.
# On a CPU small passes are faster (measured: 0.45 s against 0.64 s for 2,000 tokens by MiniLM-L6),
# because texts of one length stand together and less padding is computed.
_TOKENS_AT_ONCE: Final = {"cpu": 1_024, "cuda": 65_536}
# Similarities of tokens that are held at a time.
_SIMILARITIES_AT_ONCE: Final = 1 << 21
# Items after which memory is given back; it takes milliseconds.
_TRIM_EVERY: Final = 8
_LARGEST_LENGTH: Final = 1_000_000
# Their byte-level tokenisers tell a word at the begin of a text from one after a blank.
_PREFIX_SPACE: Final = frozenset({"roberta", "gpt2", "longformer", "bart", "led"})


class _Text(NamedTuple):
    """A text as the encoder takes it; `ids` with the tokens that mark begin and end."""

    ids: tuple[int, ...]
    is_empty: bool
    is_truncated: bool


class Encoder:
    """Token embeddings of one layer.

    Args:
        folder: Configuration, tokeniser and weights.
        layer: Transformer layers that are run; all of them where None.
        max_length: Tokens of a text that are read, special ones included; as many as the model
            takes where None.
        device: "cpu" or "cuda".
        cache_bytes: Memory for embeddings that are kept.

    Raises:
        UsageError: If the model is of a form that can't be cut at a layer, or has fewer layers.
    """

    def __init__(
        self,
        folder: Path,
        *,
        layer: int | None,
        max_length: int | None,
        device: str,
        cache_bytes: int,
    ) -> None:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        options = {"add_prefix_space": True} if config.model_type in _PREFIX_SPACE else {}
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        model = AutoModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, use_safetensors=True
        )
        if hasattr(model, "encoder") and hasattr(model, "decoder"):
            model = model.encoder
        self.layer = _cut(model, layer)
        self._model = model.eval().to(device)
        self._device = device
        self.max_length = max_length or _length(self._tokenizer, config)
        marks = (self._tokenizer.cls_token_id, self._tokenizer.sep_token_id)
        self._marks = frozenset(mark for mark in marks if mark is not None)
        self._n_marks = self._tokenizer.num_special_tokens_to_add(pair=False)
        self._kept: Cache[tuple[int, ...], torch.Tensor] = Cache(cache_bytes)
        self._n_compared = 0

    def compare(self, texts: Sequence[str], name: str, *, idf: bool) -> PairScores:
        """BERTScore precision and recall of every ordered pair.

        Args:
            texts: N texts; white space at both ends plays no part.
            name: Of the encoder, for the record.
            idf: Weigh tokens by their inverse document frequency among these texts.
        """
        read = [self._read(text) for text in texts]
        ids = list(dict.fromkeys(text.ids for text in read if not text.is_empty))
        weight_of: dict[int, float] = {}
        if idf:
            found_in = Counter(token for text in read for token in set(text.ids))
            weight_of.update(idf_weights(found_in, len(read)))
        weight_of |= dict.fromkeys(self._marks, 0.0)
        found = np.zeros((len(read), len(read)), np.float32)
        if ids:
            full = [row for row, text in enumerate(read) if not text.is_empty]
            at = [ids.index(read[row].ids) for row in full]
            vectors = torch.cat(self._embed(ids))
            lengths = [len(text) for text in ids]
            starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
            rows = max(1, _SIMILARITIES_AT_ONCE // len(vectors))
            parts = ((part @ vectors.T).cpu().numpy() for part in torch.split(vectors, rows))
            # The largest similarity of each token to a token of each text.
            best = np.concatenate([np.maximum.reduceat(part, starts, axis=1) for part in parts])
            weights = [weight_of.get(token, 1.0) for text in ids for token in text]
            precision = precision_of(best, np.array(weights, np.float64), starts)
            found[np.ix_(full, full)] = precision[np.ix_(at, at)]
        self._n_compared += 1
        if self._n_compared % _TRIM_EVERY == 0:
            # Arrays of ever other sizes leave holes between those that are kept: without this a
            # run grew by 0.9 MB an item of 20 answers, all of it free.
            give_back()
        n_truncated = sum(text.is_truncated for text in read)
        return PairScores(found, np.ascontiguousarray(found.T), name, self.layer, n_truncated)

    def _read(self, text: str) -> _Text:
        ids = self._tokenizer(text.strip(), truncation=False, verbose=False)["input_ids"]
        if len(ids) <= self.max_length:
            return _Text(tuple(ids), len(ids) <= self._n_marks, is_truncated=False)
        cut = self._tokenizer(text.strip(), truncation=True, max_length=self.max_length)
        return _Text(tuple(cut["input_ids"]), is_empty=False, is_truncated=True)

    def _embed(self, ids: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        """Normalised embeddings of each text, shape (its tokens, width)."""
        known = ((text, self._kept.get(text)) for text in ids)
        found = {text: vectors for text, vectors in known if vectors is not None}
        missing = sorted((text for text in ids if text not in found), key=len)
        while missing:
            n = max(1, _TOKENS_AT_ONCE[self._device] // len(missing[-1]))
            missing, batch = missing[:-n], missing[-n:]
            for text, vectors in zip(batch, self._run(batch), strict=True):
                found[text] = vectors
                self._kept.put(text, vectors, vectors.nbytes)
        return [found[text] for text in ids]

    def _run(self, batch: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        longest = max(map(len, batch))
        ids = torch.full((len(batch), longest), self._tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(batch):
            ids[row, : len(text)] = torch.tensor(text)
            mask[row, : len(text)] = 1
        with torch.inference_mode():
            states = self._model(ids.to(self._device), attention_mask=mask.to(self._device))[0]
            states = torch.nn.functional.normalize(states, dim=-1)
        return [states[row, : len(text)].clone() for row, text in enumerate(batch)]


def _cut(model: object, layer: int | None) -> int:
    """Drop the layers after `layer`; returns how many are left."""
    for holder, name in (
        (getattr(model, "encoder", None), "layer"),
        (getattr(model, "transformer", None), "layer"),
        (model, "layer"),
        (model, "layers"),
        (model, "block"),
    ):
        layers = getattr(holder, name, None)
        if isinstance(layers, torch.nn.ModuleList):
            break
    else:
        raise UsageError(f"the encoder {type(model).__name__} can't be cut at a layer")
    if layer is None:
        return len(layers)
    if not 0 <= layer <= len(layers):
        raise UsageError(f"layer {layer} of an encoder that has {len(layers)}")
    setattr(holder, name, layers[:layer])
    return layer


def _length(tokenizer: Any, config: Any) -> int:  # noqa: ANN401
    """The most tokens that the encoder takes, special ones included."""
    stated = int(tokenizer.model_max_length)
    if stated < _LARGEST_LENGTH:
        return stated
    positions = getattr(config, "max_position_embeddings", None)
    # Models of the RoBERTa family count positions from the padding token's id on.
    offset = 2 if config.model_type in {"roberta", "xlm-roberta", "longformer", "camembert"} else 0
    return int(positions) - offset if positions else _LARGEST_LENGTH
