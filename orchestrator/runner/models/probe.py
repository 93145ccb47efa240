"""Probing one model on one server: sends the requests, leaves the judging to `probing`."""

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Set
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from orchestrator.ask import Ask, GenerateAsk, RewardAsk, ScoreAsk
from orchestrator.backend import answered
from orchestrator.errors import UsageError
from orchestrator.probing import abilities, checks, record
from orchestrator.probing.abilities import Example
from orchestrator.probing.record import ALTERNATIVES, BAD, NO, Finding, ProbeRecord, Seen, unknown
from orchestrator.probing.replies import HttpReply, chat
from orchestrator.records import Failure, Generation, Message, Messages, Sampling, Scored
from orchestrator.runner.event_loop import at_once
from orchestrator.runner.models.asking import Asking, Http, Target
from orchestrator.wire import rulings
from orchestrator.wire.requests import Dialect, messages_of

_CHAT: Final = "/v1/chat/completions"
_USUAL_CAP: Final = 20
_LONG_LIST: Final = 1_000
_WARM_DRAWS: Final = 3
_N_MIXED: Final = 6
_MIXED_TOKENS: Final = 24
_ROUNDS: Final = 2
# Findings of the first contact that a whole probe makes anew, by more.
_ASKED_ANEW: Final = frozenset({"score"})
# vLLM's V1 runner is the one known to mix replies up.
_MAY_MIX: Final = frozenset({"vllm"})

_LISTING: Final = frozenset({"logprobs", "top_logprobs"})

T = TypeVar("T")

QUESTION: Final[Messages] = (
    Message(
        "user",
        "Which is the largest animal? A: a mouse. B: a whale. C: a cat. Answer with one letter, "
        "A, B or C, and nothing else.",
    ),
)
"""Prompt of a probe of labels."""
SCORED_TOKENS: Final = 8
SAMPLED_TOKENS: Final = 12

_OFFICIAL: Final = frozenset(
    {"frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
     "messages", "model", "seed", "stream", "temperature", "top_logprobs", "top_p"}
)  # fmt: skip


def chat_request(model: str, **more: object) -> dict[str, object]:
    """A chat completion of one greedy token with alternatives, changed as `more` says."""
    return {
        "model": model,
        "messages": messages_of(record.PROMPTS[0]),
        "max_tokens": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "stream": False,
        "logprobs": True,
        "top_logprobs": ALTERNATIVES,
        "return_token_ids": True,
        **more,
    }


def plainer(body: dict[str, object], refused: HttpReply) -> dict[str, object] | None:
    """Return a simpler request in place of a refused one; None if there is none left to try.

    Hosted endpoints refuse what others ignore: fields of vLLM first, then those that a reasoning
    model does not take.
    """
    if refused.status not in {400, 422}:
        return None
    fields: Set[str] = body.keys() - _OFFICIAL
    if not fields and "max_completion_tokens" in refused.words:
        fields = body.keys() & {"max_tokens"}
    if not fields:
        is_none = refused.failure is not None and refused.failure.cause == "no_logprobs"
        fields = _LISTING if is_none else {rulings.field_in(refused.words)} & {"seed"}
    return _left_out(body, fields) if fields & body.keys() else None


def _left_out(body: dict[str, object], fields: Set[str]) -> dict[str, object]:
    """A request without some fields; the most tokens are said by another one."""
    other = {"max_tokens": "max_completion_tokens"} if "max_tokens" in fields else {}
    kept = [name for name in body if name in other or name not in fields]
    return {other.get(name, name): body[name] for name in kept}


async def probe_model(target: Target, *, quick: bool = False, noise: bool = True) -> ProbeRecord:
    """Ask a server what it really does; see `Probe.rest`.

    Raises:
        UsageError: If its replies can't be read, which is a fault of this program.
    """
    async with Http(target.endpoint) as http:
        probe = Probe(target, http)
        await probe.first_contact()
        return await probe.rest(quick=quick, noise=noise)


class Probe:
    """One probe of a model.

    Attributes:
        asks: Its questions, which say if the server answered nothing for the moment.
    """

    def __init__(self, target: Target, http: Http) -> None:
        self._t = target
        self.asks = Asking(target, http)
        self._greedy: HttpReply = HttpReply(0, b"not asked")
        self._ids: tuple[int, ...] | None = None
        self._most = _USUAL_CAP
        self._text: Generation | Failure | None = None
        self._first: list[Finding] = []
        # Fields of chats.
        self._taken: frozenset[str] = frozenset()
        self._refused: frozenset[str] = frozenset()

    async def first_contact(self) -> ProbeRecord:
        """Ask a server, by a few small requests, for what the run needs of it.

        That is a text, and the made-up asks of methods, up to the first that it refuses. A refusal
        is asked for twice: only two make a finding.

        Raises:
            UsageError: As `rest`.
        """
        return self._record(await self._readable(self._needed()))

    async def _needed(self) -> list[Finding]:
        wants, found = self._t.wants, self._first
        questions: list[Callable[[], Coroutine[Any, Any, Finding]]] = []
        if "generate" in wants or not self._t.examples:
            questions.append(self._generates)
        if "score" in wants:
            questions.append(self._scores)
        questions += [partial(self._tried, ask) for ask in self._t.examples]
        for question in questions:
            finding = await question()
            if _is_refusal(finding):
                finding = await question()
            found.append(finding)
            if _is_refusal(finding) or self.asks.unsure:
                break
        return found

    async def rest(self, *, quick: bool = False, noise: bool = True) -> ProbeRecord:
        """Ask a server what it really does, after the first contact.

        Args:
            quick: Ask only whether it is the same model with as many alternatives, and whether
                scores are those of generation, as for a server that was probed before.
            noise: Measure how much its log-probabilities vary.

        Raises:
            UsageError: If its replies can't be read, which is a fault of this program.
        """
        found = await self._readable(self._whole(quick=quick))
        # Reward models, which draw none, are only asked to rate answers.
        rated = self._t.wants == {"reward"}
        seen, measured = ((), None) if rated else await self._readable(self._all_seen(noise=noise))
        if measured is not None:
            found.append(checks.noise(measured))
        return self._record(found, seen, measured)

    async def _readable(self, asked: Coroutine[Any, Any, T]) -> T:
        found = await answered(asked)
        if isinstance(found, Failure):
            raise UsageError(f"{self._t.model!r} cannot be probed: {found.message}")
        return found

    async def _whole(self, *, quick: bool) -> list[Finding]:
        # What was asked first is not asked again.
        first = {finding.name: finding for finding in self._first}
        if self._t.wants == {"reward"}:
            return self._first
        if quick:
            chats = [] if self._t.endpoint.plain else [self.chat()]
            parts = await at_once(*chats, self.scoring())
        elif self._t.endpoint.plain:
            parts = await at_once(self.scoring(), self.choosing())
        else:
            # What follows needs the first reply.
            chat_findings = await self.chat()
            scoring, sampling, choosing, tokens = await at_once(
                self.scoring(), self.sampling(), self.choosing(), self.tokens()
            )
            # By themselves: a draw may depend on what else a server computes, and what is asked
            # last spoils it.
            repeatable, labels = await self.repeatable(), await self.labels()
            parts = [chat_findings, scoring, sampling, repeatable, choosing, tokens, labels]
        found = chain.from_iterable(parts)
        return [*found, *(one for name, one in first.items() if name not in _ASKED_ANEW)]

    def _record(
        self, findings: list[Finding], seen: tuple[Seen, ...] = (), measured: float | None = None
    ) -> ProbeRecord:
        return ProbeRecord(
            backend=self._t.kind,
            model=self._t.model,
            version=self._t.provenance.version,
            fingerprint=self._t.provenance.fingerprint,
            findings=tuple(findings),
            n_prompt=self.n_prompt,
            seen=seen,
            noise=measured,
        )

    @property
    def n_prompt(self) -> int | None:
        """Tokens of the question, as the server counts them."""
        found = chat(self._greedy)
        return None if found is None else found.n_prompt

    async def _ask(self, **more: object) -> HttpReply:
        """One chat completion; what an endpoint refuses is left out from then on.

        So is what the back-end leaves out, by its settings or by what it has learnt.
        """
        dialect = getattr(self._t.backend, "dialect", Dialect())
        self._refused |= {*dialect.omit, *({"max_tokens"} - {dialect.max_tokens_field})}
        self._refused |= frozenset() if dialect.logprobs else _LISTING
        whole = chat_request(self._t.model, **more)
        body = _left_out(whole, self._refused)
        reply = await self.asks.post(_CHAT, body)
        while (other := plainer(body, reply)) is not None:
            body, reply = other, await self.asks.post(_CHAT, other)
        if reply.failure is None:
            self._taken |= body.keys()
            # What was taken before is not to blame.
            self._refused |= whole.keys() - self._taken
        return reply

    async def _generates(self) -> Finding:
        greedy = Sampling(max_tokens=SCORED_TOKENS)
        ask = Ask().generate(self._t.model, record.PROMPTS[0], greedy)
        self._text = await self.asks.generate(ask, 0)
        return checks.generates(self._text)

    async def _scores(self) -> Finding:
        text = self._text
        if not isinstance(text, Generation):
            return unknown("score", "no text came")
        ask = Ask().score(self._t.model, record.PROMPTS[0], text)
        return checks.consistency([(text, await self.asks.score(ask))])

    async def chat(self) -> list[Finding]:
        """Check log-probabilities, and the number of alternatives."""
        # One after the other: the first teaches what is refused.
        self._greedy = await self._ask()
        many = await self._ask(top_logprobs=checks.ASKED_FOR_CAP)
        if chat(self._greedy) is None:
            self._greedy = await self._ask()
        findings = checks.logprobs(self._greedy, ALTERNATIVES)
        if findings[-1].name == "logprobs":
            return findings
        cap = checks.cap(many)
        # Labels are seldom among the few best, so they are looked for as far down as it goes.
        self._most = min(int(cap.value), _LONG_LIST) if cap.value.isdecimal() else _USUAL_CAP
        return [*findings, cap]

    async def scoring(self) -> list[Finding]:
        """Check that texts come, and that their scores are those of generation."""
        model, ask = self._t.model, Ask()
        # Unlikely tokens show more than the likeliest; at temperature 1 ln p is raw everywhere.
        warm = Sampling(max_tokens=SCORED_TOKENS, temperature=1.0)
        first = [] if self._text is not None else [await self._generates()]
        warm_draws = await at_once(
            *(
                self.asks.generate(ask.generate(model, record.PROMPTS[0], warm), seed)
                for seed in range(1, _WARM_DRAWS + 1)
            )
        )
        texts = [one for one in (self._text, *warm_draws) if isinstance(one, Generation)]
        pairs = await self._scored(
            [(text, ask.score(model, record.PROMPTS[0], text)) for text in texts]
        )
        if not any(checks.tells(one) for one, _ in pairs):
            pairs += await self._alternatives()
        return [*first, checks.consistency(pairs)]

    async def _scored(
        self, drawn: list[tuple[Generation, ScoreAsk]]
    ) -> list[tuple[Generation, Scored | Failure]]:
        scored = await at_once(*(self.asks.score(ask) for _, ask in drawn))
        return [(text, score) for (text, _), score in zip(drawn, scored, strict=True)]

    async def _alternatives(self) -> list[tuple[Generation, Scored | Failure]]:
        """Tokens that were listed but not drawn, scored as answers of their own.

        A model that is sure of itself draws tokens whose ln p is 0 within rounding, and a wrong
        score of them would look right; these are the unlikely ones.
        """
        if self._t.endpoint.plain:
            return []
        listing = chat(await self._ask(return_tokens_as_token_ids=True))
        top = listing.positions[0].top_logprobs if listing is not None and listing.positions else ()
        listed = []
        for one in top[1:]:
            if one.id is not None and one.logprob is not None:
                ask = ScoreAsk(self._t.model, record.PROMPTS[0], (one.id,), one.token)
                logprobs = np.array([one.logprob], np.float32)
                listed.append((Generation(one.token, "listed", logprobs=logprobs), ask))
        return await self._scored(listed)

    async def sampling(self) -> list[Finding]:
        """Check the effect of the temperature."""
        if "temperature" in self._refused:
            return [unknown("temperature", "the endpoint is sent none")]
        warm, half = await at_once(*(self._ask(temperature=t, seed=1) for t in (1.0, 0.5)))
        return [checks.temperature(warm, half)]

    async def repeatable(self) -> list[Finding]:
        """Check the effect of a seed."""
        several = {"temperature": 1.0, "max_tokens": SAMPLED_TOKENS}
        same = [await self._ask(seed=1, **several) for _ in range(2)]
        others = await at_once(*(self._ask(seed=seed, **several) for seed in (2, 3, 4)))
        return [checks.seed(same, others)]

    async def choosing(self) -> list[Finding]:
        """Check the exactness and correctness of label probabilities."""
        letters, verdicts = await at_once(
            *(
                self.asks.choose(Ask().choose(self._t.model, QUESTION, labels))
                for labels in (abilities.ONE_TOKEN, abilities.MANY_TOKENS)
            )
        )
        found = [
            abilities.choice("choose_letters", letters),
            abilities.choice("choose_verdicts", verdicts),
        ]
        if self._t.endpoint.plain:
            return found
        wide = await self._ask(messages=messages_of(QUESTION), top_logprobs=self._most)
        return [*found, abilities.agreement(letters, abilities.ONE_TOKEN, wide)]

    async def _tried(self, ask: Example) -> Finding:
        if isinstance(ask, GenerateAsk):
            return abilities.tried_drawing(ask, await self.asks.generate(ask, 0))
        if isinstance(ask, RewardAsk):
            return abilities.tried_rating(ask, await self.asks.reward(ask))
        return abilities.tried_choice(ask, await self.asks.choose(ask))

    async def tokens(self) -> list[Finding]:
        """Check what the chat template makes of a chat."""
        found = await self.asks.rendered(record.PROMPTS[0])
        if isinstance(found, Failure):
            return [unknown("template", found.message)]
        self._ids, text = found
        findings = [checks.beginning(self._ids)]
        findings.append(checks.prompt_length(len(self._ids), self.n_prompt))
        if text is not None:
            findings += checks.template(text, dt.datetime.now(tz=dt.UTC).date())
        odd = None if text is None else await self.asks.rendered((Message("user", checks.NASTY),))
        if odd is None or isinstance(odd, Failure) or odd[1] is None:
            return [*findings, unknown("round_trip", "the server does not turn ids into text")]
        return [*findings, checks.round_trip(odd[1])]

    async def labels(self) -> list[Finding]:
        """Check requests for given ids, and their effect on other replies."""
        if self._ids is None:
            return [unknown("label_ids", "no token ids are known")]
        load = await self._t.backend.load()
        if self._t.kind in _MAY_MIX and (load is None or load.running or load.waiting):
            # What is asked here spoils the replies that others wait for, where servers mix them up.
            return [unknown("label_ids", "not asked: the server is busy with others' requests")]
        # Tokens of the prompt's end: real ones, and unlikely to be said next.
        ids = sorted(set(self._ids[-4:]))
        exact = {"logprob_token_ids": ids, "return_tokens_as_token_ids": True, "top_logprobs": 0}
        found = checks.label_ids(await self._ask(**exact), ids)
        if found.value != "yes" or self._t.kind not in _MAY_MIX:
            return [found]
        alone = await self._together(_N_MIXED, {})
        together = await self._together(_N_MIXED, exact)
        return [found, checks.mixing(alone, together)]

    async def _all_seen(self, *, noise: bool) -> tuple[tuple[Seen, ...], float | None]:
        """Return the answers to several prompts, and their variation where it is measured.

        One after the other, then all at once: what is computed together rounds differently.
        """
        if not noise:
            return tuple(await at_once(*map(self._seen, record.PROMPTS))), None
        alone = tuple([await self._seen(prompt) for prompt in record.PROMPTS])
        # What lists nothing does not vary.
        n = _ROUNDS if any(one.listed for one in alone) else 0
        rounds = [await at_once(*map(self._seen, record.PROMPTS)) for _ in range(n)]
        found = [one[0] for one in (record.compare(alone, some) for some in rounds) if one]
        return alone, max(found, default=None)

    async def _seen(self, prompt: Messages) -> Seen:
        if not self._t.endpoint.plain:
            messages = messages_of(prompt)
            reply = await self._ask(messages=messages, max_tokens=record.TOKENS)
            if (seen := record.of_chat(chat(reply))).listed:
                return seen
        sampling = Sampling(max_tokens=record.TOKENS)
        drawn = await self.asks.generate(Ask().generate(self._t.model, prompt, sampling), 0)
        return Seen() if isinstance(drawn, Failure) else record.of_text(drawn)

    async def _together(self, n: int, beside: dict[str, object]) -> list[HttpReply]:
        """Ordinary replies, asked at once, each beside another request where one is given."""
        ordinary: list[asyncio.Task[HttpReply]] = []
        # It shows only where they share a step of the server.
        self.asks.room = asyncio.Semaphore(2 * n)
        async with asyncio.TaskGroup() as group:
            for seed in range(n):
                ordinary.append(group.create_task(self._ask(max_tokens=_MIXED_TOKENS, seed=seed)))
                if beside:
                    group.create_task(self._ask(max_tokens=_MIXED_TOKENS, **beside))
        return [task.result() for task in ordinary]


def _is_refusal(finding: Finding) -> bool:
    return finding.value == NO or finding.state == BAD
