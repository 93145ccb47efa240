"""SGLang's `/v1/tokenize` and `/v1/detokenize`, as `backends._tokens` wants them.

A conversation that is rated has no route that renders it: its chat template is rendered here.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NoReturn

from jinja2 import Template, TemplateError, Undefined

from backends._by_ids import TokenizerRoutes
from backends._tokens import Ids
from backends.sglang import wire
from orchestrator.prompts.bounded import BoundedEnvironment
from orchestrator.prompts.costs import allowance
from orchestrator.records import Failure, Message, Messages
from orchestrator.wire import by_ids, failures
from orchestrator.wire.requests import messages_of

GENERATE: Final = "/generate"


class SglangTokenizer(TokenizerRoutes):
    """The server's tokenizer; a `backends._tokens.Tokenizer`."""

    prefix = "/v1"

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """See `backends._tokens.Tokenizer`.

        A chat that ends with the assistant's whole turn is asked with a user's turn behind it: by
        itself the server takes that last turn for the user's.
        """
        if not (opens or goes_on) and messages[-1].role == "assistant":
            messages = (*messages, Message("user", "x"))
        model, template = self._model, self._template

        def body() -> bytes:
            return wire.tokenize_chat(model, messages, template, opens=opens, goes_on=goes_on)

        return await self._ask(f"{self.prefix}/tokenize", body, by_ids.token_ids)

    async def text(self, ids: Ids) -> str:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask(
            f"{self.prefix}/detokenize", lambda: wire.detokenize(self._model, ids), wire.text
        )

    async def spells_spaces(self) -> bool:
        """See `backends._tokens.Tokenizer`; told by two words put side by side as ids."""
        word = await self.plain("a", special=False)
        return " " in await self.text((*word, *word))

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask(
            GENERATE,
            lambda: wire.trial(ids, token),
            lambda body, secret: wire.ended_by(body, token, secret),
        )


_FAILS: Final = "the setting `chat_template` of the back-end fails: {}"


class _Environment(BoundedEnvironment):
    """The sandbox of prompts, with the rules by which chat templates are written.

    These are those of `transformers`: blocks take no line of their own, what is not given counts as
    absent, and loops may be broken off.
    """

    def __init__(self) -> None:
        super().__init__()
        self.add_extension("jinja2.ext.loopcontrols")
        self.trim_blocks = self.lstrip_blocks = True
        self.keep_trailing_newline = False
        self.undefined = Undefined


_environment: Final = _Environment()


def rendered(
    source: str, messages: Messages, tokens: Mapping[str, str], more: Mapping[str, object]
) -> str | Failure:
    """Return the text of a whole conversation, or why the template does not render it.

    Args:
        source: The template, as it comes with the model.
        messages: The conversation; no turn is opened behind it.
        tokens: Texts of special tokens by the names that the template knows, such as bos_token.
        more: Further values that it may show.
    """
    turns = messages_of(messages)
    given = {**more, **tokens, "messages": turns, "add_generation_prompt": False}
    try:
        with allowance():
            return _compiled(source).render(given, raise_exception=_refuse)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = failures.clean(str(error) or type(error).__name__)
        return Failure("bad_request", _FAILS.format(said), permanent=True)


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    return _environment.from_string(source)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
