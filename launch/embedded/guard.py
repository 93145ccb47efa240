"""What every request passes before its route is looked up: the key, and the bound of its body."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from launch.embedded.errors import ApiError, reply

MOST_BYTES: Final = 64 << 20
"""The longest body that is read, in bytes, however it is framed."""
OPEN: Final = frozenset({"/health"})
"""Paths that need no key; they tell nothing but that the server runs."""


class Guard:
    """Middleware around the whole application, so that no route can be left out.

    Args:
        app: What answers the requests that pass.
        key: Wanted as a bearer token on all paths but `OPEN`; empty for none.
    """

    def __init__(self, app: ASGIApp, key: str = "") -> None:
        self._app = app
        self._wanted = b"Bearer " + key.encode() if key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server for each request."""
        if scope["type"] != "http":
            return
        error = self._refusal(scope["path"], Headers(scope=scope))
        if error is not None:
            await reply(error.body(), error.status)(scope, receive, send)
            return
        n_bytes = 0

        async def bounded() -> Message:
            # Whatever length a request states, or none: what arrives is what counts.
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > MOST_BYTES:
                raise _too_long()
            return message

        await self._app(scope, bounded, send)

    def _refusal(self, path: str, headers: Mapping[str, str]) -> ApiError | None:
        given = headers.get("authorization", "").encode("latin-1")
        if self._wanted and path not in OPEN and not hmac.compare_digest(given, self._wanted):
            return ApiError(401, "the API key is missing or wrong", "AuthenticationError")
        stated = headers.get("content-length", "")
        return _too_long() if stated.isdigit() and int(stated) > MOST_BYTES else None


def _too_long() -> ApiError:
    return ApiError(413, f"the body is over {MOST_BYTES} bytes", "BadRequestError")
