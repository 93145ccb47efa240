"""Rouge-L: how much of one text's token sequence is a subsequence of another's.

Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", section 3.1 (sentence
level). `sentences` is what the package `rouge` 1.0.1 makes of its section 3.2 (summary level), by
which LLM-self-eval votes. Needs no model and no extra.
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations, permutations
from pathlib import Path

import numpy as np

from backends._local import Comparer, LocalBackend
from orchestrator.backend import LOCAL, Backend, ComparerKind, Endpoint
from orchestrator.contracts.settings import RougeLSettings
from orchestrator.errors import UsageError
from orchestrator.judgment.similarity import words
from orchestrator.records import Floats, PairScores


def compared(texts: Sequence[str], tokens: str) -> PairScores:
    """LCS / length of the hypothesis, and of the reference, of every ordered pair.

    Args:
        texts: N texts.
        tokens: See `RougeLSettings`.
    """
    if tokens == "sentences":
        sizes, common = _by_sentence(texts)
    else:
        texts = [text.casefold() for text in texts]
        read = [words(text) if tokens == "words" else [*"".join(text.split())] for text in texts]
        sizes = np.array([len(one) for one in read], np.float64)
        common = np.diag(sizes)
        for i, j in combinations(range(len(read)), 2):
            common[i, j] = common[j, i] = common_subsequence(read[i], read[j])
    sizes = np.maximum(sizes, 1.0)
    precision, recall = common / sizes[:, None], common / sizes
    return PairScores(precision.astype(np.float32), recall.astype(np.float32), "rouge_l", 0)


class Kind(ComparerKind[RougeLSettings]):
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
        comparer = Comparer(partial(compared, tokens=self.config.tokens))
        return LocalBackend("rouge_l", endpoint.model, lambda: comparer)


def _by_sentence(texts: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the number of different words of each text, and of the subsequences of two.

    A subsequence is that of two sentences, which end at full stops; all count together. As the
    package has it, blanks alone are a word without letters; LLM-self-eval reads an answer with the
    end of its line, so that one follows a last stop.
    """
    parts = [f"{text}\n".split(".") if text else [] for text in texts]
    read = [{tuple(part.split()) or ("",) for part in of_text if part} for of_text in parts]
    sizes = np.array([len(set().union(*sentences)) for sentences in read], np.float64)
    common = np.diag(sizes)
    for k, i in permutations(range(len(read)), 2):
        found = (_common_words(one, other) for one in read[i] for other in read[k])
        common[k, i] = len(set().union(*found))
    return sizes, common


def _common_words(reference: Sequence[str], hypothesis: Sequence[str]) -> set[str]:
    """Words of the longest common subsequence that the package finds, of the several there are."""
    grown, found = [0, *_grown(reference, hypothesis)], set[str]()
    i, j = len(reference), len(hypothesis)
    while i and j:
        if reference[i - 1] == hypothesis[j - 1]:
            found.add(reference[i - 1])
            i, j = i - 1, j - 1
            continue
        without = grown[j] & (1 << i - 1) - 1, grown[j - 1] & (1 << i) - 1
        if without[0].bit_count() > without[1].bit_count():
            i -= 1
        else:
            j -= 1
    return found


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    return next(reversed(_grown(first, second)), 0).bit_count()


def _grown(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Return a number for each token of `second`: the positions of `first` in its bits.

    A bit is set where one more token of `first` makes the longest subsequence, common with `second`
    so far, longer. Bit-parallel: one addition of integers as long as `first` for each token.

    Source: Hyyro 2004, "Bit-parallel LCS-length computation revisited".
    """
    where: dict[str, int] = {}
    for position, token in enumerate(first):
        where[token] = where.get(token, 0) | 1 << position
    every = (1 << len(first)) - 1
    unmatched, grown = every, []
    for token in second:
        met = unmatched & where.get(token, 0)
        unmatched = ((unmatched + met) | (unmatched - met)) & every
        grown.append(every & ~unmatched)
    return grown
