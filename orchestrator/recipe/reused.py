"""A run that a recipe names under `reuse`."""

from dataclasses import dataclass

from orchestrator.errors import Fault, RecipeError


@dataclass(frozen=True, slots=True)
class ReusedRun:
    """Another run, whose outcomes are copied where this one would ask the same.

    Attributes:
        path: Of its directory, absolute.
        said: As it is written in the recipe.
        place: Where it is written; the message is a prefix, `reuse.0: `.
    """

    path: str
    said: str
    place: Fault

    def error(self, message: str) -> RecipeError:
        """A fault of this entry, to be raised."""
        place = self.place
        return RecipeError([Fault(place.file, place.line, f"{place.message}{message}")])
