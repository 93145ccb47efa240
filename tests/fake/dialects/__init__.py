"""The wire formats of real servers, spoken by the fake one; a file each, found by its name.

A module offers `create(toy)`, which gives a `Dialect`. Written from the
servers' own documentation; what differs from a real server is said in `docs/fake-server.md`.
"""

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

from orchestrator.errors import UsageError
from tests.fake.http import respond
from tests.fake.protocol import RefusedError, encode, error_body
from tests.fake.rules import Verdict
from tests.fake.toy import Toy


class Dialect:
    """Routes and shapes of one kind of server.

    Attributes:
        routes: From the paths that take a POST to the names that rules know them by.
    """

    routes: ClassVar[Mapping[str, str]] = {}

    def __init__(self, toy: Toy) -> None:
        self.toy = toy

    def model_of(self, body: Mapping[str, object]) -> str:
        """The model that a request is for.

        Raises:
            RefusedError: If the server does not have it.
        """
        models = self.toy.models
        named = body.get("model")
        if not isinstance(named, str) or not named:
            return models[0] if models else "default"
        if models and named not in models:
            said = f"The model `{named}` does not exist."
            raise RefusedError(404, said, "NotFoundError")
        return named

    def answer(self, path: str, body: dict[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        """A reply's body, and how many tokens it generated.

        Raises:
            RefusedError: If the server refuses the request.
        """
        raise NotImplementedError

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """A whole reply to a GET; None where there is no such route."""
        return None

    def error(self, path: str, status: int, message: str, kind: str) -> bytes:
        """The body of an error."""
        return error_body(status, message, kind)

    def began(self, body: Mapping[str, object]) -> None:
        """A request was received; `ended` follows when it is answered or broken off."""

    def ended(self, body: Mapping[str, object]) -> None:
        """A request is no longer under way."""

    def names(self) -> bytes:
        """A whole reply that lists the models."""
        models = [{"id": name, "object": "model"} for name in self.toy.models]
        return respond(200, encode({"object": "list", "data": models}))


def load(name: str, toy: Toy) -> Dialect:
    """The dialect of a name.

    Raises:
        UsageError: If there is none.
    """
    if not name.isidentifier() or name.startswith("_"):
        raise UsageError(f"rules of the fake server: no dialect {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(f"rules of the fake server: no dialect {name!r}") from error
    made: Dialect = module.create(toy)
    return made


def number(body: Mapping[str, Any], name: str, default: float) -> float:
    """A number in a request.

    Raises:
        RefusedError: If it is something else.
    """
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RefusedError(400, f"{name} must be a number")
    return value


def ids_in(value: object, name: str) -> list[int]:
    """Token ids in a request.

    Raises:
        RefusedError: If it is something else.
    """
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise RefusedError(400, f"{name} must be a list of token ids")
    return value
