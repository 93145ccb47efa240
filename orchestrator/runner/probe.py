"""Probing one model on one server: sends the requests, leaves the judging to `probing`."""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.ask import Ask, ScoreAsk
from orchestrator.backend import Backend, Provenance
from orchestrator.probing import checks, choices, requests, template
from orchestrator.probing.record import Finding, ProbeRecord, unknown
from orchestrator.probing.replies import Chat, HttpReply, chat
from orchestrator.records import Failure, Generation, Sampling, Scored
from orchestrator.runner.http import Http

_CHAT: Final = "/v1/chat/completions"
_USUAL_CAP: Final = 20
_LONG_LIST: Final = 1_000
_WARM_DRAWS: Final = 3
_CERTAIN: Final = -0.5
_N_MIXED: Final = 6
_MIXED_TOKENS: Final = 24
# vLLM's V1 runner is the one known to mix replies up.
_MAY_MIX: Final = frozenset({"vllm"})


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is probed.

    Attributes:
        kind: Of the back-end.
        model: The server's name for the model.
        backend: Connected.
        http: To the same server, open.
        provenance: What the server says it is.
        plain: Whether it is a base model, which has no chat.
    """

    kind: str
    model: str
    backend: Backend
    http: Http
    provenance: Provenance
    plain: bool = False


def today() -> dt.date:
    """By this machine's clock."""
    return dt.datetime.now(tz=dt.UTC).date()


async def probe_model(
    target: Target, *, quick: bool = False, now: Callable[[], dt.date] = today
) -> ProbeRecord:
    """Ask a server what it really does.

    Args:
        target: Which.
        quick: Ask only whether scores are those of generation, as for a server that was probed
            before and has been started again.
        now: The day, for templates that write it.
    """
    run = _Probe(target)
    findings = await run.scoring()
    if not quick:
        if not target.plain:
            findings = [*await run.chat(), *findings, *await run.repeatable()]
        findings += await run.choosing()
        if not target.plain:
            findings += await run.tokens(now())
            findings += await run.labels()
    return ProbeRecord(
        backend=target.kind,
        model=target.model,
        version=target.provenance.version,
        fingerprint=target.provenance.fingerprint,
        findings=tuple(findings),
    )


class _Probe:
    """One probe; its requests go one after another, but for the question of mixing."""

    def __init__(self, target: Target) -> None:
        self._t = target
        self._greedy: HttpReply = HttpReply(0, b"not asked")
        self._ids: tuple[int, ...] | None = None
        self._most = _USUAL_CAP

    async def _ask(self, **more: Any) -> HttpReply:  # noqa: ANN401 (any JSON)
        """One chat completion; what an endpoint refuses is left out once."""
        body: dict[str, Any] | None = requests.chat(self._t.model, **more)
        reply = HttpReply(0, b"")
        while body is not None:
            reply = await self._t.http.post(_CHAT, body)
            body = requests.plainer(body, reply)
        return reply

    async def chat(self) -> list[Finding]:
        """Whether log-probabilities come, and how many alternatives."""
        self._greedy = await self._ask()
        findings = checks.logprobs(self._greedy, requests.ALTERNATIVES)
        if findings[-1].name == "logprobs":
            return findings
        many = await self._ask(top_logprobs=checks.ASKED_FOR_CAP)
        cap = checks.cap(many)
        # Labels are seldom among the few best, so they are looked for as far down as it goes.
        self._most = min(int(cap.value), _LONG_LIST) if cap.value.isdecimal() else _USUAL_CAP
        return [*findings, cap]

    async def scoring(self) -> list[Finding]:
        """Whether texts come, and whether their scores are those of generation."""
        model, ask = self._t.model, Ask()
        greedy = Sampling(max_tokens=requests.SCORED_TOKENS)
        # Unlikely tokens show more than the likeliest; at temperature 1 ln p is raw everywhere.
        warm = msgspec.structs.replace(greedy, temperature=1.0)
        drawn = [
            await self._t.backend.generate(ask.generate(model, requests.PROMPT, sampling), seed)
            for seed, sampling in enumerate([greedy, *[warm] * _WARM_DRAWS])
        ]
        pairs: list[tuple[Generation, Scored | Failure]] = []
        for one in drawn:
            if isinstance(one, Generation):
                scored = await self._t.backend.score(ask.score(model, requests.PROMPT, one))
                pairs.append((one, scored))
        if not any(_tells(one) for one, _ in pairs):
            pairs += await self._alternatives()
        return [checks.generates(drawn[0]), checks.consistency(pairs)]

    async def _alternatives(self) -> list[tuple[Generation, Scored | Failure]]:
        """Tokens that were listed but not drawn, scored as answers of their own.

        A model that is sure of itself draws tokens whose ln p is 0 within rounding, and a wrong
        score of them would look right; these are the unlikely ones.
        """
        if self._t.plain:
            return []
        listing = chat(await self._ask(return_tokens_as_token_ids=True))
        top = listing.positions[0].top if listing is not None and listing.positions else ()
        pairs: list[tuple[Generation, Scored | Failure]] = []
        for one in top[1:]:
            if one.token_id is not None and one.logprob is not None:
                ask = ScoreAsk(self._t.model, requests.PROMPT, (one.token_id,), one.token)
                listed = Generation(
                    one.token, "listed", logprobs=np.array([one.logprob], np.float32)
                )
                pairs.append((listed, await self._t.backend.score(ask)))
        return pairs

    async def repeatable(self) -> list[Finding]:
        """What temperature, bias and seed do."""
        warm = await self._ask(temperature=1.0, seed=1)
        half = await self._ask(temperature=0.5, seed=1)
        found = [checks.temperature(warm, half), await self._bias()]
        several = {"temperature": 1.0, "max_tokens": requests.SAMPLED_TOKENS}
        same = [await self._ask(seed=1, **several) for _ in range(2)]
        others = [await self._ask(seed=seed, **several) for seed in (2, 3, 4)]
        return [*found, checks.seed(same, others)]

    async def _bias(self) -> Finding:
        drawn = _drawn_id(chat(self._greedy))
        if drawn is None:
            return unknown("bias", "no token id to put a bias on")
        biased = await self._ask(logit_bias={str(drawn): -100})
        return checks.bias(self._greedy, biased)

    async def choosing(self) -> list[Finding]:
        """How exactly labels are read, and whether right."""
        ask = Ask()
        letters = await self._t.backend.choose(
            ask.choose(self._t.model, requests.QUESTION, choices.ONE_TOKEN)
        )
        verdicts = await self._t.backend.choose(
            ask.choose(self._t.model, requests.QUESTION, choices.MANY_TOKENS)
        )
        found = [
            choices.choice("choose_letters", letters),
            choices.choice("choose_verdicts", verdicts),
        ]
        if self._t.plain:
            return found
        question = requests.turns(requests.QUESTION)
        wide = await self._ask(messages=question, top_logprobs=self._most)
        return [*found, choices.agreement(letters, choices.ONE_TOKEN, wide)]

    async def tokens(self, day: dt.date) -> list[Finding]:
        """What the template does, and whether texts come back from ids."""
        routes = requests.TOKENISING.get(self._t.kind)
        if routes is None:
            return [unknown("template", f"{self._t.kind} has no tokenise route")]
        asked = {
            "model": self._t.model,
            "messages": requests.turns(requests.PROMPT),
            "add_generation_prompt": True,
        }
        reply = await self._t.http.post(routes.chat_path, asked)
        rendered, self._ids = requests.text(reply, routes.rendered_field), requests.ids(reply)
        if rendered is not None and self._ids is None and routes.text_path:
            with_special = {routes.text_field: rendered, "add_special": True, "parse_special": True}
            self._ids = requests.ids(await self._t.http.post(routes.text_path, with_special))
        if rendered is None and self._ids is not None:
            rendered = await self._back(routes, self._ids)
        found: list[Finding] = []
        if self._ids is not None:
            counted = chat(self._greedy)
            n_used = None if counted is None else counted.n_prompt
            found = [template.beginning(self._ids), template.prompt_length(len(self._ids), n_used)]
        else:
            found = [unknown("template", f"{routes.chat_path}: {reply.status} {reply.words}")]
        if rendered is not None:
            found += template.template(rendered, day)
        return [*found, await self._round_trip(routes)]

    async def _back(self, routes: requests.Tokenising, ids: tuple[int, ...]) -> str | None:
        if not routes.back_path:
            return None
        asked = {"model": self._t.model, "tokens": ids, "skip_special_tokens": False}
        return requests.text(await self._t.http.post(routes.back_path, asked), routes.back_field)

    async def _round_trip(self, routes: requests.Tokenising) -> Finding:
        if not routes.text_path or not routes.back_path:
            return unknown("round_trip", "the server does not turn ids into text")
        asked = {"model": self._t.model, routes.text_field: template.NASTY, **routes.text_extra}
        ids = requests.ids(await self._t.http.post(routes.text_path, asked))
        back = None if ids is None else await self._back(routes, ids)
        if back is None:
            return unknown("round_trip", "the server does not turn ids into text")
        return template.round_trip(template.NASTY, back)

    async def labels(self) -> list[Finding]:
        """Whether given ids can be asked for, and whether that spoils other replies."""
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

    async def _together(self, n: int, beside: dict[str, Any]) -> list[HttpReply]:
        """Ordinary replies, asked at once, each beside another request where one is given."""
        ordinary: list[asyncio.Task[HttpReply]] = []
        async with asyncio.TaskGroup() as group:
            for seed in range(n):
                ordinary.append(group.create_task(self._ask(max_tokens=_MIXED_TOKENS, seed=seed)))
                if beside:
                    group.create_task(self._ask(max_tokens=_MIXED_TOKENS, **beside))
        return [task.result() for task in ordinary]


def _tells(drawn: Generation) -> bool:
    """Whether a wrong score of a text would show: not where all its tokens are certain."""
    logprobs = drawn.logprobs
    return logprobs is not None and bool((logprobs < _CERTAIN).sum() > 1)


def _drawn_id(found: Chat | None) -> int | None:
    if found is None:
        return None
    if found.token_ids:
        return found.token_ids[0]
    return found.positions[0].drawn.token_id if found.positions else None
