"""Requests as the fake server reads them, and errors as it words them."""

from typing import Any, Final

import msgspec

from tests.fake import language


class Turn(msgspec.Struct, gc=False):
    """One message; content that is no text is shown as its JSON."""

    role: str = "user"
    content: Any = ""


class Prefix(msgspec.Struct, gc=False):
    """The begun assistant turn."""

    text: str = ""
    token_ids: list[int] = []


class Request(msgspec.Struct, gc=False):
    """The fields of all routes; each route reads its own."""

    model: str = ""
    messages: list[Turn] = []
    prompt: str | list[Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    n: int = 1
    stop: str | list[str] | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    stream: bool = False
    return_token_ids: bool = False
    continue_final_message: bool = False
    token_ids: list[int] | None = None
    text: str | None = None
    features: list[str] = []
    end_of_turn: bool = False
    labels: list[list[str]] | None = None
    prefix: Prefix | None = None
    use_activation: bool | None = None

    def stops(self) -> list[str]:
        """Stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def limit(self, default: int) -> int:
        """The bound on generated tokens."""
        wanted = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        return default if wanted is None else wanted


class RefusedError(Exception):
    """A request that is answered with an error body."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind


encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Request).decode


def read(body: bytes) -> Request:
    """The request in `body`.

    Raises:
        RefusedError: If it is no JSON, or has fields of wrong types.
    """
    try:
        return _decode(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, str(error)) from error


def error_body(status: int, message: str, kind: str = "BadRequestError") -> bytes:
    """An error as vLLM words it."""
    return encode({"error": {"message": message, "type": kind, "param": None, "code": status}})


def render(messages: list[Turn]) -> str:
    """The prompt as the fake chat template makes it, without the assistant's mark."""
    return "\n".join(f"{turn.role}: {turn_text(turn)}" for turn in messages) + "\n"


def turn_text(turn: Turn) -> str:
    """The text of a message."""
    if isinstance(turn.content, str):
        return turn.content
    return "" if turn.content is None else encode(turn.content).decode()


class Prompt(msgspec.Struct, frozen=True):
    """A prompt on its way to a reply.

    Attributes:
        judged: The user's words, in which answers are looked for.
        context: Decides log-probabilities, together with position and token.
        begun: Ids of the begun assistant turn.
        n_tokens: Length in tokens, begun turn and assistant's mark included.
    """

    judged: str
    context: int
    begun: tuple[int, ...]
    n_tokens: int


def prompt_of(request: Request) -> Prompt:
    """The prompt of a chat-like request.

    Raises:
        RefusedError: If there are no messages.
    """
    messages = request.messages
    if not messages:
        raise RefusedError(400, "messages must not be empty")
    begun: list[int] = []
    if request.continue_final_message and messages[-1].role == "assistant":
        begun = language.encode(turn_text(messages[-1]))
        messages = messages[:-1]
    if request.prefix is not None:
        begun = request.prefix.token_ids or language.encode(request.prefix.text)
        check_ids(begun)
    rendered = render(messages)
    return Prompt(
        judged="\n".join(turn_text(turn) for turn in messages if turn.role != "assistant"),
        context=language.number(request.model, rendered),
        begun=tuple(begun),
        n_tokens=language.count(rendered) + 1 + len(begun),
    )


def check_ids(ids: list[int]) -> None:
    """Refuse ids outside the vocabulary.

    Raises:
        RefusedError: If there is one.
    """
    for token_id in ids:
        if not language.is_id(token_id):
            raise RefusedError(400, f"token id {token_id} is out of vocabulary")
