"""Replies of `/v1/completions`, the legacy route that base models are asked by -> `Generation`.

Log-probabilities come as parallel lists, alternatives as mappings from a token's text. What is
made of them is what is made of a chat reply.
"""

from typing import Any, Final

import msgspec

from orchestrator.records import Failure, Generation
from orchestrator.wire.answers import Answer, ListedEntry, Message, withheld
from orchestrator.wire.drawn import Reading, drawn
from orchestrator.wire.parsing import NO_USAGE, Decoder, Usage, error_in


class _Choice(Answer[ListedEntry], gc=False):
    text: str | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None


_completion: Final = Decoder(_Completion)


def completion(body: bytes, reading: Reading) -> Generation | Failure:
    """A drawn text from a completion; failures as those of a chat reply."""
    reply = _completion(body, reading.secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or not reply.choices:
        return error_in(body, reading.secret)
    choice = reply.choices[0]
    if choice.text is None:
        return withheld(choice, reading.secret) or error_in(body, reading.secret)
    choice.message = Message(choice.text)
    return drawn(choice, reply.usage or NO_USAGE, reading)
