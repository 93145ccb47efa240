"""Requirements checked against what a recipe names."""

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.gates.grammar import MEASURES, Argument, Requirement, UnreadableError, read
from orchestrator.recipe.faults import nearest


@dataclass(frozen=True, slots=True)
class Names:
    """Names that requirements may use.

    Attributes:
        models: Models that are evaluated.
        judges: Models that judge.
        methods: Methods.
    """

    models: Collection[str]
    judges: Collection[str]
    methods: Collection[str]


def read_checked(text: str, names: Names) -> Requirement:
    """Return a requirement whose names are known.

    Args:
        text: The requirement.
        names: Those of the recipe.

    Raises:
        UnreadableError: If it can't be read, or a name is unknown; with the nearest name.
    """
    found = read(text)
    for term in found.terms:
        for role, argument in zip(MEASURES[term.measure].roles, term.names, strict=False):
            known = names.models if role == "model" else names.judges
            _check(role, argument, known, text)
        if len({one.name for one in term.names}) < len(term.names):
            raise UnreadableError("a model or judge is named twice", text, term.names[1].column)
        if judge := term.options.get("judge"):
            _check("judge", judge, names.judges, text)
        if method := term.options.get("method"):
            # A score may be named with its column.
            name = Argument(method.name.partition(".")[0], method.column)
            _check("method", name, names.methods, text)
    return found


def _check(what: str, argument: Argument, known: Collection[str], text: str) -> None:
    if argument.name not in known:
        message = f"unknown {what} {argument.name!r}{nearest(argument.name, known)}"
        raise UnreadableError(message, text, argument.column)
