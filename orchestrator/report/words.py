"""A ranking in sentences that every format shares, and as plain values for JSON."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec

from orchestrator import numbers
from orchestrator.statistics.ranking import ModelRating, Pair, RankingAnalysis
from orchestrator.statistics.results import APPROXIMATE_BELOW, MISSED

# Sentences that keep the names in them apart from our own words.
#
# Each format writes names in its own way: escaped, isolated from the direction of the text around
# them, or cut to a width. A sentence is therefore made once and written by each format.


# Names that a sentence lists before it counts the rest.
_MOST_NAMES: Final = 4


class Name(msgspec.Struct, frozen=True):
    """A name from outside: of a model, a judge or a method."""

    text: str


class Quote(msgspec.Struct, frozen=True):
    """Another text from outside, e.g. a message of a server."""

    text: str


Part = str | Name | Quote


class Phrase(msgspec.Struct, frozen=True):
    """Our words, and texts from outside, in their order."""

    parts: tuple[Part, ...] = ()

    def __bool__(self) -> bool:
        """Return True if it says anything."""
        return any(part if isinstance(part, str) else part.text for part in self.parts)

    def text(self, name: Callable[[str], str] = str, words: Callable[[str], str] = str) -> str:
        """Return the sentence as one text.

        Args:
            name: Writes what comes from outside, e.g. escaped.
            words: Writes our own words.
        """
        return "".join(
            words(part) if isinstance(part, str) else name(part.text) for part in self.parts
        )


def phrase(*parts: Part | Phrase | Iterable[Part]) -> Phrase:
    """A sentence of texts, names and other phrases."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str | Name | Quote):
            found.append(part)
        else:
            found += part.parts if isinstance(part, Phrase) else part
    return Phrase(tuple(part for part in found if part != ""))


def names(listed: Sequence[str], most: int = _MOST_NAMES) -> list[Part]:
    """`a, b and c`; of many names the first ones, and how many more there are."""
    shown = list(listed) if len(listed) <= most else list(listed[: most - 1])
    parts: list[Part] = []
    for place, name in enumerate(shown):
        is_last = place == len(listed) - 1
        parts += [] if not place else [" and " if is_last else ", "]
        parts.append(Name(name))
    if len(shown) < len(listed):
        parts.append(f" and {numbers.count(len(listed) - len(shown))} more")
    return parts


UNTRUSTED: Final = "(untrusted)"
"""Stands behind the title of what rests on a judge that is not to be trusted."""

# Pairs that a sentence names; JSON has all.
_MOST_PAIRS: Final = 8


def subject(analysis: RankingAnalysis) -> str:
    """Describe the ranking: its models, the judge, and the method where it is known."""
    what = f"Ranking of {numbers.count(len(analysis.ratings))} models"
    if analysis.judge is not None:
        what = f"{what} by {analysis.judge}"
    elif analysis.judges:
        what = f"{what} by all judges: {', '.join(analysis.judges)}"
    if analysis.source:
        what = f"{what} ({analysis.source})"
    return f"{what} {UNTRUSTED}" if analysis.warning else what


def told_apart(analysis: RankingAnalysis) -> Phrase:
    """State the models that can be told apart, over all pairs; empty for none compared."""
    if analysis.pairs and analysis.warning:
        return phrase("Not resolvable: untrusted judgments. The order of the rows is not a result.")
    if analysis.pairs and analysis.caution:
        return phrase(
            "Not resolvable yet: trust in the judge is open. The order of the rows is not a result."
        )
    return pairs_apart(analysis.pairs, analysis.confidence_level)


def pairs_apart(pairs: Sequence[Pair], confidence_level: float) -> Phrase:
    """State the pairs that can be told apart; empty for no pairs.

    Args:
        pairs: All pairs that are tested together.
        confidence_level: Of all resolvable pairs together.
    """
    n_pairs = len(pairs)
    if not n_pairs:
        return Phrase()
    apart = [pair for pair in pairs if pair.resolvable]
    if not apart:
        level, models = 1.0 - confidence_level, "no two models can"
        # So many would be resolvable if each stood alone.
        alone = sum(pair.p_value is not None and pair.p_value < level for pair in pairs)
        if n_pairs == 1 or not alone:
            models = "the two models cannot" if n_pairs == 1 else models
            end = "The order of the rows is not a result."
            return phrase(f"Not resolvable: {models} be told apart. {end}")
        return phrase(
            f"Not resolvable: {models} be told apart when all {numbers.counted(n_pairs, 'pair')} "
            f"are tested together (Holm, {numbers.level(level)}); taken alone, "
            f"{numbers.count(alone)} would be."
        )
    if len(apart) == n_pairs:
        if n_pairs == 1:
            return phrase("The two models can be told apart.")
        return phrase(f"All {numbers.count(n_pairs)} pairs of models can be told apart.")
    counted = f"{numbers.count(len(apart))} of {numbers.count(n_pairs)}"
    start = f"{counted} pairs of models can be told apart"
    # The shorter list says it all, as long as it can be read.
    if min(len(apart), n_pairs - len(apart)) > _MOST_PAIRS:
        return phrase(f"{start}.")
    if 2 * len(apart) > n_pairs:
        rest = [pair for pair in pairs if not pair.resolvable]
        return phrase(f"{start}; these cannot: ", _listed(rest, "and"), ".")
    return phrase(f"{start}: ", _listed(apart, "over"), ".")


def _listed(pairs: Sequence[Pair], word: str) -> list[Part]:
    """`a over c, d; b over d`, the first of many pairs."""
    below: dict[str, list[str]] = {}
    for pair in pairs[:_MOST_PAIRS]:
        below.setdefault(pair.better, []).append(pair.worse)
    parts: list[Part] = []
    for above, others in below.items():
        parts += ["; "] if parts else []
        parts += [Name(above), f" {word} "]
        for place, other in enumerate(others):
            parts += [", ", Name(other)] if place else [Name(other)]
    left = len(pairs) - _MOST_PAIRS
    return parts if left <= 0 else [*parts, f"; and {numbers.counted(left, 'pair')} more"]


def few_words(analysis: RankingAnalysis) -> str:
    """Name the unit of which an analysis has few, and what they cannot rule out."""
    alone = analysis.n_clusters == analysis.n_items_used
    what = "prompts" if alone else "clusters of prompts"
    return f"fewer than {APPROXIMATE_BELOW} {what}: {MISSED}"


def neighbour_amount(pair: Pair) -> str:
    """The difference of a pair with its interval, or why there is none."""
    if pair.difference is None:
        return "the difference has no bound"
    low, high = numbers.bounds(
        pair.low,
        pair.high,
        low_open=pair.low is None and pair.high is not None,
        high_open=pair.high is None and pair.low is not None,
    )
    text = numbers.difference(pair.difference, low, high)
    has_interval = pair.low is not None or pair.high is not None
    return text if has_interval else f"{text}, without an interval"


def rank_words(model: ModelRating) -> str:
    """The ranks that the data leave open to a model."""
    if model.rank_low is None or model.rank_high is None:
        return numbers.UNDEFINED
    return numbers.rank(model.rank_low, model.rank_high)


def rating_bounds(model: ModelRating) -> str:
    """The interval of a rating; in words where a model won, or lost, everything."""
    if model.rating is None and model.low_open != model.high_open:
        return "above the others" if model.high_open else "below the others"
    low, high = numbers.bounds(
        model.low, model.high, low_open=model.low_open, high_open=model.high_open
    )
    return numbers.interval(low, high)


FORMAT: Final = 2
"""Raised when a field changes its meaning or goes; new fields may come at any time."""


def ranking_json(
    analysis: RankingAnalysis, exact_match: Mapping[str, float | None] | None = None
) -> dict[str, Any]:
    """The fields and properties of `RankingAnalysis`, with `format` and `verdict`, as JSON values.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    document = {
        "format": FORMAT,
        "warning": analysis.warning,
        "trusted": not analysis.warning,
        "order_resolvable": analysis.order_resolvable,
        "verdict": told_apart(analysis).text(),
        **plain(analysis),
        "neighbours": plain(analysis.neighbours),
    }
    if exact_match:
        document["exact_match"] = plain(dict(exact_match))
    return document


def plain(value: Any, text: Callable[[str], str] = str) -> Any:  # noqa: ANN401 (JSON values)
    """The value as JSON has it: numbers that it lacks as null, texts as `text` writes them.

    Structs and dataclasses become objects, and sentences texts.
    """
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name), text) for one in fields(value)}
    match value:
        case Phrase():
            return text(value.text())
        case msgspec.Struct():
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            return {shown: plain(getattr(value, name), text) for shown, name in names}
        case float():
            return value if math.isfinite(value) else None
        case str():
            return text(value)
        case dict():
            return {str(name): plain(inner, text) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner, text) for inner in value]
        case _:
            return value
