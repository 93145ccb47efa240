"""Replies and errors of requests, in the form of the wire."""

from typing import Any

import msgspec
from starlette.responses import Response

from orchestrator.errors import LaunchError

_encode = msgspec.json.Encoder().encode


def reply(fields: Any, status: int = 200) -> Response:  # noqa: ANN401 (any JSON)
    """Return a JSON response; numbers that are not finite become null."""
    return Response(_encode(fields), status, media_type="application/json")


class UnsupportedModelError(LaunchError):
    """The model can't be served with numbers that equal its plain forward pass."""


class ApiError(Exception):
    """A request that is answered with an error body.

    Attributes:
        status: HTTP status.
        message: For the caller; never holds a secret.
        kind: The `type` of the body, as vLLM names it.
        param: The field at fault, where one is.
    """

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, dict[str, str | int | None]]:
        """The JSON body."""
        fields: dict[str, str | int | None] = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return {"error": fields}


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400."""
    return ApiError(400, message, "BadRequestError", param)


def not_found(message: str) -> ApiError:
    """A 404."""
    return ApiError(404, message, "NotFoundError", "model")


def overloaded(waiting: int) -> ApiError:
    """A 503: the queue is full."""
    text = "The engine is currently busy and cannot accept new requests"
    return ApiError(503, f"{text} ({waiting} waiting)", "ServiceUnavailableError")


def internal(message: str) -> ApiError:
    """A 500."""
    return ApiError(500, message, "InternalServerError")


class ClientGoneError(Exception):
    """The client closed the connection before it was answered."""
