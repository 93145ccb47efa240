"""Answers that exist already: `models.NAME.answers` of a recipe."""

from typing import Self

from pydantic import Field, model_validator

from orchestrator.settings import Settings


class GivenAnswers(Settings):
    """Answers that exist already, in a file or in a column of the dataset."""

    path: str | None = Field(None, min_length=1)
    """A file of answers, relative to the recipe: JSON Lines, JSON, CSV or Parquet, in the form of
    MT-Bench, AlpacaEval, lm-eval, a frame `answers`, or a key or prompt and a text."""
    generator: str | None = None
    """Name of the model, if the file holds answers of several."""
    key: str | None = Field(None, min_length=1)
    """Column of item keys. Default: found by the usual names."""
    prompt: str | None = Field(None, min_length=1)
    """Column of prompts, for a file without keys."""
    text: str | None = Field(None, min_length=1)
    """Column of answers; a text, or a list with one for each turn."""
    field: str | None = Field(None, min_length=1)
    """A column of the dataset instead of a file: labelled pairs."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.field is None):
            raise ValueError("give either 'path' (a file) or 'field' (a column of the dataset)")
        of_file = [name for name in ("generator", "key", "prompt", "text") if getattr(self, name)]
        if self.field is not None and of_file:
            raise ValueError(f"{of_file[0]!r} can be used only with 'path', not with 'field'")
        return self
