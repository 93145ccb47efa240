"""Back-ends connected to fake servers that speak their dialect."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from orchestrator.backend import Endpoint
from tests.backends.kinds import kind_in
from tests.fake.main import serving

Connect = Callable[..., Awaitable[tuple[Any, Any]]]
KEY = "sk-1234"


@contextlib.asynccontextmanager
async def connecting(
    module: ModuleType, dialect: str, served: Sequence[str] = ("m",), **usual: Any
) -> AsyncIterator[Connect]:
    """Starts a fake server and a back-end of a kind to it at each call; all end with the block.

    Args:
        module: The back-end's.
        dialect: Of the server, where a call names none.
        served: The names that the server answers to.
        usual: Settings of the back-end, where a call names no others.
    """
    async with contextlib.AsyncExitStack() as stack:
        usually = dialect

        async def open_one(
            dialect: str = usually,
            *,
            model: str = "m",
            rules: Sequence[object] = (),
            quirks: Sequence[str] = (),
            extra: Mapping[str, object] | None = None,
            **settings: Any,
        ) -> tuple[Any, Any]:
            given = {"dialect": dialect, "rules": list(rules), "quirks": list(quirks)}
            url, server = await stack.enter_async_context(serving(given, models=served, key=KEY))
            endpoint = Endpoint(
                base_url=url, model=model, api_key=KEY, timeout_s=60.0, extra_body=extra or {}
            )
            backend = kind_in(module)(kind_in(module).Config(**{**usual, **settings})).connect(
                endpoint
            )
            stack.push_async_callback(backend.close)
            return backend, server

        yield open_one
