"""A ranking as plain values for JSON: undefined and open numbers are null, and open has a flag."""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.report.words import verdict
from orchestrator.statistics.ranking import RankingAnalysis

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
        "verdict": verdict(analysis),
        **plain(msgspec.to_builtins(analysis)),
        "neighbours": plain(msgspec.to_builtins(analysis.neighbours)),
    }
    if exact_match:
        document["exact_match"] = plain(dict(exact_match))
    return document


def plain(value: Any) -> Any:  # noqa: ANN401 (JSON values)
    """The value with numbers that JSON lacks as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value
