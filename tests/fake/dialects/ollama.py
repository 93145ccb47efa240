"""Ollama's OpenAI-compatible route: fields it does not know are passed over.

Over-long prompts are cut in silence by the quirk "silent_truncation". Only chat completions, with
log-probabilities as since 0.12.11; without them by the quirk "ignored_fields".
"""

from collections.abc import Mapping
from typing import ClassVar

from tests.fake.dialects import Dialect
from tests.fake.dialects.openai import Openai
from tests.fake.http import respond
from tests.fake.protocol import encode
from tests.fake.toy import Toy

VERSION = "0.12.11"


class Ollama(Openai):
    """One server."""

    routes: ClassVar[Mapping[str, str]] = {"/v1/chat/completions": "chat"}
    ignores_unknown = True

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """See `Dialect`."""
        if path == "/api/version":
            return respond(200, encode({"version": VERSION}))
        if path == "/":
            return respond(200, b"Ollama is running", content_type="text/plain")
        return super().get(path, running)


def create(toy: Toy) -> Dialect:
    """A server of this kind."""
    return Ollama(toy)
