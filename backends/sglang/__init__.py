"""SGLang's server: exact scores and label probabilities by ids, and its prefix cache kept by both.

Written against SGLang 0.5.23; see `docs/servers.md`. Draws, scores and label probabilities all go
through `/generate`, by the ids of a prompt that the server's own `/v1/tokenize` has rendered. A
conversation that is rated has no route that renders it: its chat template is rendered here.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NoReturn

from jinja2 import TemplateError, Undefined
from pydantic import Field

from backends._by_ids import ByIds, ByIdsConfig
from backends._openai_compatible import HttpKind
from backends._tokens import Ids, TokenizerRoutes, as_outcome
from backends._transport import Transport
from backends.sglang import wire
from orchestrator.ask import ChooseAsk, GenerateAsk, RewardAsk
from orchestrator.backend import Endpoint, Provenance
from orchestrator.prompts.bounded import BoundedEnvironment
from orchestrator.prompts.costs import allowance
from orchestrator.prompts.files import TemplateText
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Message,
    Messages,
    Rewards,
    unsupported,
)
from orchestrator.wire import failures
from orchestrator.wire import rewards as rating
from orchestrator.wire.by_ids import Forced, Path, Walk
from orchestrator.wire.failures import Failed, known
from orchestrator.wire.requests import ARGUMENTS, Dialect, messages_of


class Config(ByIdsConfig):
    """Settings of the connection."""

    chat_template: TemplateText | None = Field(
        None,
        description="The chat template of a reward model (a .jinja file, or the text), by which "
        "conversations are rendered here: SGLang rates texts only.",
    )
    special_tokens: dict[str, str] = Field(
        default_factory=dict,
        description="Texts of special tokens that `chat_template` names, such as bos_token.",
    )
    original_logprobs: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="True if the server was started with SGLANG_RETURN_ORIGINAL_LOGPROB=1: then "
        "log-probabilities are those before the temperature. True of those that a run launches.",
    )
    lora_path: str = Field(
        "",
        description="Name of the LoRA adapter that answers; empty: the model without one. Known of "
        "servers that a run launches.",
    )


class Tokenizer(TokenizerRoutes):
    """The server's tokenizer; a `backends._tokens.TokenizerRoutes`."""

    prefix = "/v1"
    # By itself the server takes the assistant's last turn for the user's.
    behind = Message("user", "x")
    chat_body = staticmethod(wire.tokenize_chat)
    text_body = staticmethod(wire.detokenize)
    text_in = staticmethod(wire.text)

    async def spells_spaces(self) -> bool:
        """See `TokenizerRoutes`; told by two words put side by side as ids."""
        word = await self.plain("a", special=False)
        return " " in await self.text((*word, *word))

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `TokenizerRoutes`."""
        return await self._ask(
            GENERATE, wire.trial(ids, token), lambda body, secret: wire.tried(body, token, secret)
        )


class Connection(ByIds):
    """A connection to one model of an SGLang server."""

    kind = "sglang"
    server_name = "SGLang"
    score_method = "input_token_logprobs"
    tokenizer = Tokenizer
    _config: Config

    def __init__(self, endpoint: Endpoint, transport: Transport, config: Config) -> None:
        extra = {"lora_path": config.lora_path} if config.lora_path else {}
        dialect = Dialect(system_role=config.system_role, extra=extra)
        super().__init__(endpoint, transport, dialect, config)

    # -- what is asked ----------------------------------------------------------------------------

    @as_outcome
    async def generate(self, ask: GenerateAsk, seed: int) -> Generation:
        """See `orchestrator.backend.Backend`; seeds count under deterministic inference only."""
        self._check_turns(ask.messages)
        prompt = await self._contexts.prompt(ask.messages)
        # 0 draws greedily without scaling; top-p and top-k never touch the numbers.
        raw = self._config.original_logprobs or ask.sampling.temperature in {0, 1}
        reading = self._reading(ask, raw=raw)
        return await self._ask(
            GENERATE,
            wire.draw(prompt, ask, seed, self.dialect.others),
            lambda body, _: wire.generation(body, reading, len(prompt)),
        )

    @as_outcome
    async def reward(self, ask: RewardAsk) -> Rewards | Failure:
        """See `orchestrator.backend.Backend`; the conversation is rendered here."""
        self._check_ratable(ask.messages)
        config, model = self._config, self._endpoint.model
        if config.chat_template is None:
            raise Failed(_NO_TEMPLATE)
        more = self.dialect.extra.get(ARGUMENTS)
        given = {**(more if isinstance(more, dict) else {}), **config.special_tokens}
        text = known(rendered(config.chat_template, ask.messages, given))
        # As ids, since a text would get what the tokenizer puts around one, such as BOS, once more.
        ids = await self._contexts.server.plain(text, special=False)
        method, secret = f"{self.kind}.classify", self._endpoint.secret
        found = await self._post_to(
            rating.CLASSIFY,
            rating.classify(model, ids),
            lambda body: rating.classified(body, method, secret),
        )
        return self._with_route(found, rating.CLASSIFY)

    @as_outcome
    async def provenance(self) -> Provenance | Failure:
        """Version; a failure without the model, or while the server is not ready."""
        ready = await self._got("/ready")
        if ready.status not in {200, 404}:
            return self._classified(ready)
        await self._check_served()
        version, _ = await self._version("/server_info")
        return self._stated(version, "")

    # -- how it is done ----------------------------------------------------------------------------

    async def _forced(self, prompt: Ids, ids: Ids, n_top: int) -> Forced:
        if not prompt:
            raise Failed(unsupported("SGLang gives no log-probability to the first token of all"))
        whole, n_prompt = (*prompt, *ids), len(prompt)
        return await self._ask(
            GENERATE,
            wire.score(whole, n_prompt, n_top, self._config.lora_path),
            lambda body, secret: wire.forced(body, whole, n_prompt, n_top, secret),
        )

    async def _choose(self, ask: ChooseAsk) -> Choice:
        whole, walk = await self._labels(ask)
        # The shared beginning first: then its tokens are in the prefix cache, and what it rules
        # out is not asked.
        n_cached = await self._look(whole, walk, [()])
        n_requests = 1
        if nodes := walk.unread():
            await self._look(whole, walk, nodes)
            n_requests += 1
        return walk.choice(f"{self.kind}.token_ids_logprob", len(whole), n_cached, n_requests)

    async def _look(self, whole: Ids, walk: Walk, nodes: Sequence[Path]) -> int:
        """Read the tokens that may follow at nodes; how many prompt tokens were cached."""
        prompts = [(*whole, *node) for node in nodes]
        wanted = [walk.children[node] for node in nodes]
        readings, n_cached = await self._ask(
            GENERATE,
            wire.look(prompts, wanted, self._config.lora_path),
            lambda body, secret: wire.looked(body, prompts, wanted, secret),
        )
        walk.add(nodes, readings)
        return n_cached


class Kind(HttpKind[Config]):
    """Connections to models of such a server."""

    cites = ("zheng2024sglang",)
    made = Connection


GENERATE: Final = "/generate"


_NO_TEMPLATE: Final = unsupported(
    "SGLang rates the text of a conversation and renders none for that; say "
    "`backend: {kind: sglang, chat_template: PATH}`, the reward model's own chat_template.jinja"
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


_compiled: Final = lru_cache(maxsize=16)(_Environment().from_string)


def rendered(source: str, messages: Messages, given: Mapping[str, object]) -> str | Failure:
    """Return the text of a whole conversation, or why the template does not render it.

    Args:
        source: The template, as it comes with the model.
        messages: The conversation; no turn is opened behind it.
        given: Texts of special tokens by the names that the template knows, such as bos_token, and
            further values that it may show.
    """
    values = {**given, "messages": messages_of(messages), "add_generation_prompt": False}
    try:
        with allowance():
            return _compiled(source).render(values, raise_exception=_refuse)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = failures.clean(str(error) or type(error).__name__)
        return Failure("bad_request", _FAILS.format(said), permanent=True)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
