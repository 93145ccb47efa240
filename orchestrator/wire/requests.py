"""Asks -> request bodies. Bytes are a pure function of the arguments, field order included.

Every sampling field is written out, because servers take what is missing from the model's
`generation_config.json`.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.records import Message, Messages

encode: Final = msgspec.json.Encoder().encode
"""Plain data to JSON; raises UnicodeEncodeError for a lone surrogate, which is no text.

So does all that makes a body of it."""

OWN_FIELDS: Final = frozenset({
    "add_generation_prompt", "continue_final_message", "decoder_input_details", "details",
    "do_sample", "echo", "input_ids", "inputs", "logprob_start_len", "logprobs", "lora_path",
    "max_completion_tokens", "max_new_tokens", "max_tokens", "messages", "model", "n", "parameters",
    "prompt", "return_full_text", "return_logprob", "return_text_in_logprobs", "sampling_params",
    "sampling_seed", "seed", "stop", "stream", "temperature", "template", "token_ids_logprob",
    "top_k", "top_logprobs", "top_logprobs_num", "top_n_tokens", "top_p",
})  # fmt: skip
"""Fields that requests to one server or another have; a user's may not be among them."""


def check_names(extra: dict[str, object], own: Collection[str] = OWN_FIELDS) -> dict[str, object]:
    """Return a user's extra fields.

    Raises:
        ValueError: If some are our own.
    """
    if ours := sorted(extra.keys() & {*own}):
        raise ValueError(f"already set by the recipe, remove from here: {', '.join(ours)}")
    return extra


NO_TEMPLATE: Final = "none"
"""Value of our own field `template`: the message is the prompt, without the chat template."""
ARGUMENTS: Final = "chat_template_kwargs"
"""Field of the arguments of a chat template."""
_RENDERED: Final = frozenset({ARGUMENTS, "chat_template", "documents", "tools"})
NOTHING: Final[Mapping[str, object]] = {}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The form of chat requests for one kind of server.

    Attributes:
        max_tokens_field: "max_tokens", or "max_completion_tokens" where the server insists.
        logprobs: Whether log-probabilities are asked for at all.
        least_tokens: The fewest tokens that the server draws; of more than one, a choice reads the
            first.
        top_logprobs: The largest `top_logprobs` the server takes.
        token_ids: Whether the server knows `return_token_ids`.
        top_k_off: What says "no top-k"; None leaves the field out.
        omit: Fields the server refuses, left out.
        extra: Fields added to every generation.
        plain: Whether the message is sent to the model as it is, without the chat template; for
            servers with our own routes, which know the field `template`.
        system_role: Whether the server takes the role system; else a system prompt is put before
            the user's first message.
    """

    max_tokens_field: str = "max_tokens"
    least_tokens: int = 1
    logprobs: bool = True
    top_logprobs: int = 20
    token_ids: bool = False
    top_k_off: int | None = None
    omit: tuple[str, ...] = ()
    extra: Mapping[str, Any] = {}
    plain: bool = False
    system_role: bool = True

    @property
    def template(self) -> dict[str, object]:
        """Those of the fields added that play a part when a chat template is rendered."""
        return {name: value for name, value in self.extra.items() if name in _RENDERED}

    @property
    def others(self) -> dict[str, object]:
        """Those of the fields added that play none."""
        return {name: value for name, value in self.extra.items() if name not in _RENDERED}

    def taken(self, messages: Messages) -> Messages:
        """Return messages in the roles that the server takes."""
        if self.system_role or messages[0].role != "system":
            return messages
        system, *others = messages
        first = f"{system.content}\n\n{others[0].content}" if others else system.content
        return (Message("user", first), *others[1:])

    def turns(self, messages: Messages) -> list[dict[str, str]]:
        """Return the same as they are sent."""
        return messages_of(self.taken(messages))

    def listed(self, wanted: int) -> int:
        """Return the number of alternatives to request so that the `wanted` best are among them.

        One more than wanted: some servers put the drawn token first and cut the list to length, so
        that the last of the best would be lost.
        """
        return min(wanted + 1, self.top_logprobs) if wanted else 0


def chat(model: str, ask: GenerateAsk, seed: int, dialect: Dialect) -> bytes:
    """The body of a chat completion that draws one text."""
    n_most = {dialect.max_tokens_field: ask.sampling.max_tokens}
    head = {"model": model, "messages": dialect.turns(ask.messages), **n_most}
    listed = {"logprobs": True, "top_logprobs": dialect.listed(ask.top_logprobs)}
    body = _drawn(head, ask, seed, dialect, listed)
    if dialect.plain:
        body["template"] = NO_TEMPLATE
    return _finish(body, dialect)


def completion(model: str, ask: GenerateAsk, seed: int, dialect: Dialect) -> bytes:
    """The body of a legacy completion that goes on from the message as it is."""
    n_most = {"max_tokens": ask.sampling.max_tokens}
    head = {"model": model, "prompt": ask.messages[-1].content, **n_most}
    # 0 is off for some servers, and the drawn token's alone for others.
    listed = {"logprobs": max(1, dialect.listed(ask.top_logprobs))}
    return _finish(_drawn(head, ask, seed, dialect, listed), dialect)


def _drawn(
    head: dict[str, object],
    ask: GenerateAsk,
    seed: int,
    dialect: Dialect,
    listed: Mapping[str, object],
) -> dict[str, object]:
    sampling = ask.sampling
    drawing = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": seed}
    body = {**head, **drawing, "stream": False}
    if sampling.top_k or dialect.top_k_off is not None:
        body["top_k"] = sampling.top_k or dialect.top_k_off
    if sampling.stop:
        body["stop"] = sampling.stop
    if dialect.logprobs:
        body |= listed
    if dialect.token_ids:
        body["return_token_ids"] = True
    return body


def choose_by_top(model: str, ask: ChooseAsk, dialect: Dialect) -> bytes:
    """The body of a chat completion of one token that lists its alternatives."""
    messages = dialect.turns(ask.messages)
    body: dict[str, Any] = {
        "model": model, "messages": messages, dialect.max_tokens_field: dialect.least_tokens,
        "temperature": 0.0, "top_p": 1.0, "seed": 0, "stream": False,
        "logprobs": True, "top_logprobs": dialect.top_logprobs,
    }  # fmt: skip
    if dialect.top_k_off is not None:
        body["top_k"] = dialect.top_k_off
    if ask.prefix.text:
        messages.append({"role": "assistant", "content": ask.prefix.text})
        body["add_generation_prompt"] = False
        body["continue_final_message"] = True
    return _finish(body, dialect)


def score(
    model: str, ask: ScoreAsk, template: Mapping[str, object] = NOTHING, *, plain: bool = False
) -> bytes:
    """The body of our own `/v1/score`: log-probabilities of ids, or of a text, after the prompt."""
    body: dict[str, Any] = {"model": model, "messages": messages_of(ask.messages), **template}
    if plain:
        body["template"] = NO_TEMPLATE
    if ask.token_ids:
        body["token_ids"] = ask.token_ids
    else:
        body["text"] = ask.text
    if ask.top_logprobs:
        body["top_logprobs"] = ask.top_logprobs
    if ask.features:
        body["features"] = ask.features
    if ask.end_of_turn:
        body["end_of_turn"] = True
    return encode(body)


def choose(
    model: str, ask: ChooseAsk, template: Mapping[str, object] = NOTHING, *, plain: bool = False
) -> bytes:
    """The body of our own `/v1/choose`; labels are lists of spellings."""
    body: dict[str, Any] = {"model": model, "messages": messages_of(ask.messages), **template}
    if plain:
        body["template"] = NO_TEMPLATE
    if ask.prefix.token_ids:
        body["prefix"] = {"token_ids": ask.prefix.token_ids}
    elif ask.prefix.text:
        body["prefix"] = {"text": ask.prefix.text}
    body["labels"] = [label.spellings for label in ask.labels]
    return encode(body)


def messages_of(messages: Messages) -> list[dict[str, str]]:
    """Messages as every server takes them."""
    return [{"role": role, "content": content} for role, content in messages]


def _finish(body: dict[str, object], dialect: Dialect) -> bytes:
    body.update(dialect.extra)
    for field in dialect.omit:
        body.pop(field, None)
    return encode(body)
