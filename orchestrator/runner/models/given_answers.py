"""Models whose answers exist already: opened once, and seen to fit the items."""

from collections.abc import Mapping

import msgspec

from orchestrator.ask import GenerateAsk
from orchestrator.dataset import Dataset
from orchestrator.errors import DatasetError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.records import Failure, Sampling
from orchestrator.units import Given


class GivenModel(msgspec.Struct, frozen=True):
    """Answers of one model.

    Attributes:
        find: Gives the answer to a turn of an item.
        identity: What decides them, in words.
    """

    find: Given
    identity: dict[str, str]


def open_given(specs: Mapping[str, ModelSpec], dataset: Dataset) -> dict[str, GivenModel]:
    """The answers of the models that have them instead of a server.

    Raises:
        DatasetError: If a file is missing or malformed, or none of its answers fits an item.
    """
    found = {}
    for name, spec in specs.items():
        if spec.answers is not None:
            # It knows every form of file, which takes long to import.
            from orchestrator.runner.models.answers import given_answers  # noqa: PLC0415

            find, identity = given_answers(spec.answers)
            _check_fit(name, find, dataset)
            found[name] = GivenModel(find, identity)
    return found


def _check_fit(name: str, find: Given, dataset: Dataset) -> None:
    """See that there is an answer to some item; the others become failed units.

    Raises:
        DatasetError: If there is none.
    """
    first: Failure | None = None
    for index in range(len(dataset)):
        item = dataset.item(index)
        answer = find(item, GenerateAsk(name, item.messages, Sampling(), item.key, turn=1))
        if not isinstance(answer, Failure):
            return
        first = first or answer
    why = first.message if first is not None else "the dataset has no items"
    raise DatasetError(f"model {name!r}: no answer fits an item of {dataset.name}: {why}")
