"""Endpoints of three manners, each in a thread: what providers refuse, ask for and leave out."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from tests.fake.dialects.openai import Openai
from tests.fake.protocol import RefusedError
from tests.fake.rules import Rules, Verdict
from tests.fake.toy import Toy

KEY: Final = "sk-0123456789abcdef"
QUALITIES: Final = {"small": 0.2, "large": 0.9, "judge": 1.0}
_THOUGHT: Final = 40

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manner:
    """How an endpoint differs from others.

    Attributes:
        place: Path and query of the address that the provider prints.
        key: Header that must have the key, with its value.
        most: Alternatives that it lists; 0 for no log-probabilities.
        refused: Fields that it refuses.
        thinks: Reasons before it answers.
    """

    place: str
    key: tuple[str, str] = ("Authorization", f"Bearer {KEY}")
    most: int = 20
    refused: tuple[str, ...] = ()
    thinks: bool = False


MANNERS: Final = {
    "capped": Manner("/v1", most=5, refused=("seed",)),
    "azure": Manner("/openai/v1?api-version=2024-10-21", ("api-key", KEY), refused=("max_tokens",)),
    "thinking": Manner("/api/v3", most=0, thinks=True),
}


class Endpoint:
    """One endpoint.

    Attributes:
        url: As the provider prints it.
        bodies: Of all that were asked for a text.
        headers: Of all requests.
        n_posted: Requests that were posted, to whatever route.
    """

    def __init__(self, manner: Manner) -> None:
        self.url = ""
        self.bodies: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.n_posted = 0
        self._manner = manner
        self._models = Openai(Toy(Rules(quality=QUALITIES), tuple(QUALITIES)))

    async def answer(self, request: web.Request) -> web.Response:
        """Reply as the manner says."""
        self.headers.append(request.headers)
        self.n_posted += request.method == "POST"
        manner = self._manner
        path, _, query = manner.place.partition("?")
        header, value = manner.key
        if request.headers.get(header) != value:
            return _refusal(401, "Incorrect API key provided.")
        if not request.path.startswith(path) or request.query_string != query:
            return _refusal(404, "Resource not found")
        route = request.path.removeprefix(path)
        if route == "/models":
            return web.json_response({"data": [{"id": name} for name in QUALITIES]})
        if route != "/chat/completions":
            return _refusal(404, "Resource not found")
        body = json.loads(await request.read())
        self.bodies.append(body)
        try:
            return web.json_response(self._reply(body))
        except RefusedError as error:
            return _refusal(error.status, error.message)

    def _reply(self, body: Body) -> Body:
        manner = self._manner
        for name in manner.refused:
            if name in body:
                instead = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
                said = f"Unsupported parameter: '{name}' is not supported with this model."
                raise RefusedError(400, said + instead)
        if body.get("top_logprobs", 0) > manner.most > 0:
            said = "Invalid value for 'top_logprobs': must be less than or equal to"
            raise RefusedError(400, f"{said} {manner.most}.")
        if not manner.most and "logprobs" in body:
            raise RefusedError(400, "logprobs is not supported by this model")
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 1024)
        if manner.thinks:
            body = {**body, "max_tokens": max(1, limit - _THOUGHT)}
            body.pop("max_completion_tokens", None)
        content, _ = self._models.answer("/v1/chat/completions", body, Verdict())
        reply: Body = json.loads(content)
        if manner.thinks:
            message = reply["choices"][0]["message"]
            message["reasoning_content"] = "Let me see."
            reply["usage"]["completion_tokens"] += min(limit, _THOUGHT)
            if limit <= _THOUGHT:
                message["content"] = None
                reply["choices"][0]["finish_reason"] = "length"
        return reply


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


@contextmanager
def endpoint(manner: Manner) -> Iterator[Endpoint]:
    """An endpoint on 127.0.0.1."""
    made = Endpoint(manner)
    loop = asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", made.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}{manner.place}"
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()
