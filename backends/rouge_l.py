"""Rouge-L: how much of one text's token sequence is a subsequence of another's.

Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", section 3 (sentence
level). Needs no model and no extra.
"""

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from backends._local import LocalBackend
from orchestrator.backend import LOCAL, Backend, ComparerKind, Endpoint
from orchestrator.contracts.settings import RougeLSettings
from orchestrator.errors import UsageError
from orchestrator.records import PairScores

# Scripts that are written without blanks: each character is a token.
_CJK: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_CHARACTER: Final = re.compile(r"\S")


class Config(RougeLSettings):
    """Settings of Rouge-L."""


class RougeL:
    """Compares texts by their longest common subsequences of tokens."""

    def __init__(self, tokens: str) -> None:
        self._token = _CHARACTER if tokens == "characters" else _WORD

    def describe(self) -> tuple[str, str]:
        """Own code that gives the same everywhere."""
        return "", ""

    def compare(self, texts: Sequence[str]) -> PairScores:
        """LCS / length of the hypothesis, and of the reference, of every ordered pair."""
        read = [self._token.findall(text.casefold()) for text in texts]
        lengths = np.array([len(tokens) for tokens in read], np.float64)
        common = np.diag(lengths)
        for i, j in combinations(range(len(read)), 2):
            common[i, j] = common[j, i] = common_subsequence(read[i], read[j])
        precision = (common / np.maximum(lengths, 1.0)[:, None]).astype(np.float32)
        return PairScores(precision, np.ascontiguousarray(precision.T), "rouge_l", 0)


class RougeLKind(ComparerKind[Config]):
    """Compares texts in this process."""

    cites = ("lin2004rouge",)

    def identity(self, base: Path) -> dict[str, str]:  # noqa: ARG002 (no file takes part)
        """Name the algorithm and its tokens."""
        return {"kind": "rouge_l", "algorithm": "1", "tokens": self.config.tokens}

    def connect(self, endpoint: Endpoint) -> Backend:
        """Make what compares texts.

        Raises:
            UsageError: If it is given an address.
        """
        if endpoint.base_url != LOCAL:
            raise UsageError("rouge_l runs in this process; a model at a base_url can't be one")
        return LocalBackend("rouge_l", endpoint.model, lambda: RougeL(self.config.tokens))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence.

    Bit-parallel: one addition of integers as long as `first` for each token of `second`.
    Source: Hyyro 2004, "Bit-parallel LCS-length computation revisited".
    """
    where: dict[str, int] = {}
    for position, token in enumerate(first):
        where[token] = where.get(token, 0) | 1 << position
    every = (1 << len(first)) - 1
    unmatched = every
    for token in second:
        met = unmatched & where.get(token, 0)
        unmatched = ((unmatched + met) | (unmatched - met)) & every
    return len(first) - unmatched.bit_count()
