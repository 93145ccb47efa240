"""Settings for drawing texts, which the methods share."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.methods._temperatures import BY_BENCHMARK
from orchestrator.plugin import Row, Sampling, Settings

_Temperature = Annotated[float, Field(ge=0)]


def blank_row(columns: Mapping[str, str]) -> Row:
    """Return a row in which every column is undefined, for methods that fill in some of them."""
    return dict.fromkeys(columns)


class Drawing(Settings):
    """Settings for drawing texts."""

    max_tokens: int = Field(512, gt=0, description="Upper bound on generated tokens.")
    temperature: float = Field(0.0, ge=0, description="Sampling temperature; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="1 is off.")
    top_k: int = Field(0, ge=0, description="0 is off.")
    stop: tuple[str, ...] = Field((), description="Strings that end the text.")
    temperature_by_category: Literal["mt_bench", "align_bench"] | dict[str, _Temperature] = Field(
        default_factory=dict,
        description=(
            "Temperatures by category, overriding `temperature`: a mapping, or the name of a "
            "benchmark for the values of its authors."
        ),
    )

    @property
    def by_category(self) -> Mapping[str, float]:
        """Temperatures of categories, over `temperature`."""
        given = self.temperature_by_category
        return BY_BENCHMARK[given] if isinstance(given, str) else given

    @property
    def can_vary(self) -> bool:
        """True if texts of any category are drawn at a temperature above 0."""
        return self.temperature > 0 or any(self.by_category.values())

    def temperature_of(self, category: str | None) -> float:
        """The temperature at which texts of a category are drawn."""
        return self.by_category.get(category or "", self.temperature)

    def sampling(self, category: str | None = None) -> Sampling:
        """The compact record that travels with a request, for an item of a category."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature_of(category),
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop,
        )
