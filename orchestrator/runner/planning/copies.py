"""What requests about an item show beside its prompt, by which copies of items are told."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count, takewhile

from orchestrator.ask import GenerateAsk
from orchestrator.recipe.schema import Recipe
from orchestrator.records import Failure, Item, Sampling
from orchestrator.units import Given


def shown_of(recipe: Recipe, given: Mapping[str, Given]) -> Callable[[Item], object]:
    """Return a function that gives what a run shows of an item beside its content.

    These are the answers that exist already, and the columns that a setting names. Other columns
    are never asked about, so that rows which differ only there are copies.

    Args:
        recipe: Of the run.
        given: Finds the answers of models whose answers exist already.
    """
    named = set(_texts([one.method.config.model_dump() for one in recipe.methods]))

    def shown(item: Item) -> object:
        columns = [(name, item.fields[name]) for name in sorted(named & item.fields.keys())]
        answers = [list(_answers(item, model, find)) for model, find in given.items()]
        return columns, answers

    return shown


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in nested settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from _texts(part)


def _answers(item: Item, model: str, find: Given) -> Iterator[str]:
    """Yield the given answers to an item, turn by turn and sample by sample."""
    for turn in range(1, len(item.followups) + 2):
        asks = (
            GenerateAsk(model, item.messages, Sampling(), item.key, repeat=repeat, turn=turn)
            for repeat in count()
        )
        found = (find(item, ask) for ask in asks)
        for answer in takewhile(lambda one: not isinstance(one, Failure), found):
            yield "" if isinstance(answer, Failure) else answer.text
