"""Ratings at equal style: Bradley-Terry with the answers' length and Markdown as covariates.

A judge may prefer long or formatted answers. Ratings with and without control of style stand side
by side, with the effect of each feature of style (`orchestrator.statistics.bradley_terry`).
"""

from typing import Literal

from pydantic import Field, field_validator

from orchestrator.plugin import Analysis, Context, Settings, Table
from orchestrator.ranking.style import FEATURES, EqualStyle, Feature
from orchestrator.ranking.winners import judging_sources
from orchestrator.statistics.trust import no_ranking_by_judge
from orchestrator.tables import untrusted


class Config(Settings):
    """Settings of `style_control`."""

    method: str | None = Field(
        None, description="Name of a judging method. Default: the first of the recipe."
    )
    features: tuple[Feature, ...] = Field(
        FEATURES,
        description="Features of style to control: characters, and Markdown headers, list items "
        "and bold parts outside code blocks.",
        min_length=1,
    )
    markdown: Literal["ratio", "density"] = Field(
        "ratio",
        description="Difference of Markdown features. `ratio`: (a - b) / (a + b + 1), as Chatbot "
        "Arena; `density`: the same of counts per character, as Arena-Hard-Auto.",
    )

    @field_validator("features")
    @classmethod
    def _once(cls, value: tuple[Feature, ...]) -> tuple[Feature, ...]:
        if len(set(value)) < len(value):
            raise ValueError("name each feature once")
        return value


class StyleControlAnalysis(Analysis[Config]):
    """Ratings with and without control for the length and the Markdown of answers."""

    cites = ("li2024style",)

    def summarise(self, context: Context) -> list[Table]:
        """Ratings side by side, then the effect of each feature."""
        config = self.config
        source, *_ = judging_sources(context, () if config.method is None else (config.method,))
        tables = EqualStyle(source, config.features, config.markdown).summarise(context)
        warnings = no_ranking_by_judge(context.trust.get(source.name, ()))
        return [untrusted(table, warnings) for table in tables]
