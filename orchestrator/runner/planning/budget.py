"""Spending and its bounds: requests, tokens, money, hours of a run, over all its calls.

Tokens and money are known only when an answer is there. So what a request may take at most is
reserved before it is sent, and a request is sent only if it fits beside all that is spent and
reserved. Where it does not fit, it waits for requests in flight, which mostly take less than was
reserved for them; when nothing is in flight, the run stops.

What may have been spent by now is pledged in the store before it is, so that the bounds hold over
calls that are killed: what such a call had pledged counts as spent in the next one.

Where a server does not say how many tokens it read or wrote, they count as many as they can be.

A bound can still be exceeded by what no client knows beforehand: tokens that a server adds to a
prompt beyond what its earlier answers showed, tokens generated beyond `max_tokens` (hidden
reasoning), and tokens billed for attempts without a reply, of which nothing is reported.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from orchestrator import numbers
from orchestrator.ask import (
    AnyAsk,
    ChooseAsk,
    GenerateAsk,
    Request,
    RewardAsk,
    ScoreAsk,
    SimilarityAsk,
)
from orchestrator.errors import UsageError
from orchestrator.recipe import schema
from orchestrator.records import Choice, Failure, Generation, Outcome, Rewards, Scored
from orchestrator.report.progress import Cost
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.scheduler.ready import Admission
from orchestrator.store import Store, damaged

_log = logging.getLogger(__name__)

# Tokens that a chat template may add, to a prompt and to each of its messages, before the first
# answer shows how many there are: those of common templates, with the default system prompts that
# some have, are fewer.
_TEMPLATE_TOKENS = 64
_MESSAGE_TOKENS = 16
# Failures of replies that came, and were billed.
_BILLED = frozenset({"no_answer", "no_logprobs", "unparseable"})
# Of each bound, pledged beyond what is in flight, so that few pledges have to be written.
_AHEAD = 0.01
# Sums of floats differ from the bound in their last digits.
_ROUNDING = 1 + 1e-9


class Most(msgspec.Struct, frozen=True):
    """The most that may have been spent: what is, and what requests in flight may take."""

    requests: int = 0
    tokens: int = 0
    money: float = 0.0


class Spent(Cost):
    """Resources that a run has spent so far; kept in the store between calls.

    Attributes:
        money: For the tokens and for `lost`, also where no model has a price.
        lost: What requests may have taken that were in flight when a call was killed.
        pledged: The most that may be spent until this is written again; zeros when nothing is in
            flight.
    """

    money: float = 0.0
    lost: Most = Most()
    pledged: Most = Most()

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens together, with those that may be lost."""
        return self.prompt_tokens + self.completion_tokens + self.lost.tokens

    def after_its_call(self) -> "Spent":
        """Return what counts as spent once the call that kept this has ended, however it did."""
        pledged, lost = self.pledged, self.lost
        n_requests = max(0, pledged.requests - self.requests)
        money = max(0.0, pledged.money - self.money)
        return msgspec.structs.replace(
            self,
            requests=self.requests + n_requests,
            money=self.money + money,
            lost=Most(
                lost.requests + n_requests,
                lost.tokens + max(0, pledged.tokens - self.tokens),
                lost.money + money,
            ),
            pledged=Most(),
        )


def token_counts(outcome: Outcome | Failure) -> tuple[int, int]:
    """Prompt and completion tokens of an outcome, as the server counted them.

    Each call of a choice reads the prompt and generates one token.
    """
    match outcome:
        case Generation() | Failure():
            return outcome.n_prompt_tokens, outcome.n_completion_tokens
        case Scored():
            return outcome.n_prompt_tokens + int(outcome.token_ids.size), 0
        case Choice():
            return outcome.n_prompt_tokens * outcome.n_requests, outcome.n_requests
        case Rewards():
            return outcome.n_prompt_tokens, 0
        case _:
            return 0, 0


class Budget:
    """Counts what is spent and reserved, and says whether a request may be sent.

    `keep` writes what is spent and pledged; it is on the disk when that returns.
    """

    def __init__(
        self,
        bounds: schema.Budget,
        spent: Spent,
        prices: Mapping[str, schema.Price],
        keep: Callable[[Spent], None] = lambda _: None,
    ) -> None:
        self._bounds = bounds
        self._keep = keep
        self.spent = spent
        self._prices = prices
        self._hours_before = spent.hours
        self._is_reserving = bounds.tokens is not None or bounds.money is not None
        self._reserves: dict[bytes, Most] = {}
        self._reserved_tokens = 0
        self._reserved_money = 0.0
        # By model, as learnt from its answers: most tokens of a prompt beyond the bytes of its
        # texts, those that were allowed for each message left out, and most calls of a choice.
        self._added: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._silent: set[str] = set()
        self._stopped_by = ""
        self._too_much = Most()

    def admit(self, request: Request, elapsed_s: float) -> Admission:
        """Count a request and reserve what it may take at most, if it may be sent.

        `release` ends what is reserved; `elapsed_s` are seconds since this call began.
        """
        self.run_for(elapsed_s)
        bounds, self._stopped_by = self._bounds, self._reached()
        if not self._stopped_by and self._is_reserving:
            prompt, completion = self._most_tokens(request.ask)
            price = self._prices.get(request.ask.model, schema.Price())
            needed = Most(tokens=prompt + completion, money=price.of(prompt, completion))
            now = self._most_by_now
            if bounds.tokens is not None and now.tokens + needed.tokens > bounds.tokens:
                self._stopped_by = "tokens"
            elif bounds.money is not None and now.money + needed.money > bounds.money * _ROUNDING:
                self._stopped_by = "money"
            if self._stopped_by and self._reserves:
                self._stopped_by = ""
                return Admission.WAIT
            if self._stopped_by:
                self._too_much = needed
            else:
                self._reserves[request.key] = needed
                self._reserved_tokens += needed.tokens
                self._reserved_money += needed.money
        if self._stopped_by:
            return Admission.STOP
        self.spent.requests += 1
        now, pledged = self._most_by_now, self.spent.pledged
        if any(
            getattr(bounds, name) is not None and getattr(now, name) > getattr(pledged, name)
            for name in Most.__struct_fields__
        ):
            # What may be spent by now is not on the disk yet.
            self.pledge()
            self._keep(self.spent)
        return Admission.SEND

    def pledge(self, *, is_ending: bool = False) -> None:
        """Set what may be spent until the next time: what is in flight and a little more.

        Where `is_ending`, nothing more is sent in this call.
        """
        bounds, share = self._bounds, 0.0 if is_ending else _AHEAD
        now = self._most_by_now

        def raised(value: float, bound: float | None) -> float:
            return 0.0 if bound is None else max(value, min(bound, value + share * bound))

        self.spent.pledged = Most(
            int(raised(now.requests, bounds.requests)),
            int(raised(now.tokens, bounds.tokens)),
            raised(now.money, bounds.money),
        )

    @property
    def _most_by_now(self) -> Most:
        spent = self.spent
        return Most(
            spent.requests, spent.tokens + self._reserved_tokens, spent.money + self._reserved_money
        )

    def release(self, request: Request) -> None:
        """End what is reserved for a request, because the attempt has ended."""
        ended = self._reserves.pop(request.key, None)
        if not self._reserves:
            # Exactly nothing, whatever the sums of floats say.
            self._reserved_tokens, self._reserved_money = 0, 0.0
        elif ended is not None:
            self._reserved_tokens -= ended.tokens
            self._reserved_money -= ended.money

    def receive(self, request: Request, outcome: Outcome | Failure) -> tuple[int, int]:
        """Count the tokens of an outcome and return them: of the prompt, and generated."""
        said = token_counts(outcome)
        spent, model = self.spent, request.ask.model
        most = self._counted(request.ask, outcome, *said)
        counted = most if self._is_reserving else said
        if most != said:
            bound = numbers.AT_MOST if self._is_reserving else numbers.AT_LEAST
            spent.bound = numbers.bound({spent.bound, bound})
        spent.prompt_tokens += counted[0]
        spent.completion_tokens += counted[1]
        price = self._prices.get(model)
        if price is not None:
            spent.money += price.of(*counted)
        if self._is_reserving:
            if isinstance(outcome, Choice):
                self._calls[model] = max(self._calls.get(model, 0), outcome.n_requests)
            if isinstance(outcome, Generation | Choice | Rewards):
                added = outcome.n_prompt_tokens - _allowed(request.ask)
                self._added[model] = max(self._added.get(model, _TEMPLATE_TOKENS), added)
        return counted

    def words(self) -> str:
        """The bound that stopped the run, with what is spent now."""
        spent, bounds = self.spent, self._bounds
        match self._stopped_by:
            case "requests":
                return f"budget.requests: {spent.requests} of {bounds.requests} sent"
            case "hours":
                return f"budget.hours: {spent.hours:.2f} of {bounds.hours:.2f} used"
            case "tokens":
                said = f"budget.tokens: {spent.bound}{spent.tokens} of {bounds.tokens} used"
                lost = f"{spent.lost.tokens}" if spent.lost.tokens else ""
                more = f"take up to {self._too_much.tokens}"
            case "money":
                money = numbers.money_of(spent.money, bounds.money or 0.0)
                said = f"budget.money: {spent.bound}{money} spent"
                lost = numbers.money(spent.lost.money) if spent.lost.money else ""
                more = f"cost up to {numbers.money(self._too_much.money)}, more than is left"
            case _:
                return ""
        if lost:
            said += f" ({lost} of it at most, in flight when a call was killed)"
        return said if self._reached() else f"{said}, and the next request may {more}"

    @property
    def money(self) -> float | None:
        """Money spent; None if no model has a price."""
        return self.spent.money if any(p.input or p.output for p in self._prices.values()) else None

    def run_for(self, elapsed_s: float) -> None:
        """Count the time of this call, in seconds since it began."""
        self.spent.hours = self._hours_before + elapsed_s / 3600.0

    @property
    def left_s(self) -> float | None:
        """Time that is left, in seconds; None without a bound."""
        hours = self._bounds.hours
        return None if hours is None else max(0.0, hours - self.spent.hours) * 3600.0

    def _reached(self) -> str:
        """The bound that is reached; empty while there is room."""
        spent, bounds = self.spent, self._bounds
        pairs = (
            ("requests", spent.requests, bounds.requests),
            ("tokens", spent.tokens, bounds.tokens),
            ("money", spent.money, bounds.money),
            ("hours", spent.hours, bounds.hours),
        )
        return next((name for name, used, most in pairs if most is not None and used >= most), "")

    def _counted(
        self, ask: AnyAsk, outcome: Outcome | Failure, n_prompt: int, n_completion: int
    ) -> tuple[int, int]:
        """Tokens of an outcome; as many as there can be where the server does not say."""
        # What is refused with another status is read by no model.
        is_read = not isinstance(outcome, Failure) or (
            outcome.cause in _BILLED and outcome.status in {0, 200}
        )
        if not is_read or (n_prompt and n_completion):
            return n_prompt, n_completion
        most_prompt, most_completion = self._most_tokens(ask)
        unsaid = n_prompt == 0 and most_prompt > 0
        n_prompt = most_prompt if unsaid else n_prompt
        match outcome:
            case Choice() if unsaid:
                n_completion = outcome.n_requests
            case Failure() if unsaid:
                n_completion = most_completion
            case Generation() if not n_completion:
                logprobs, text = outcome.logprobs, outcome.thinking + outcome.text
                n_written = _n_bytes([text]) if logprobs is None else len(logprobs)
                n_completion = min(most_completion, n_written)
        if unsaid and self._is_reserving and ask.model not in self._silent:
            self._silent.add(ask.model)
            _log.warning(
                "%s does not say how many tokens it takes: for the budget they are counted by the "
                "length of the texts, at most",
                ask.model,
                extra={"model": ask.model},
            )
        return n_prompt, n_completion

    def _most_tokens(self, ask: AnyAsk) -> tuple[int, int]:
        """Tokens read and written at most: no tokenizer makes more tokens of a text than bytes."""
        added = self._added.get(ask.model, _TEMPLATE_TOKENS)
        prompt, completion = _allowed(ask), 0
        match ask:
            case GenerateAsk():
                prompt, completion = prompt + added, ask.sampling.max_tokens
            case ScoreAsk():
                prompt, completion = prompt + added, 1
            case ChooseAsk():
                calls = self._calls.get(ask.model) or len(ask.labels)
                prompt, completion = (prompt + added) * calls, calls
            case RewardAsk():
                prompt += added
            case SimilarityAsk():
                prompt = 0
        return prompt, completion


def _allowed(ask: AnyAsk) -> int:
    """Tokens of a prompt at most, without what a template adds to the whole of it."""
    if isinstance(ask, SimilarityAsk):
        return 0  # compared on this machine
    n_bytes = _n_bytes(message.content for message in ask.messages)
    n_bytes += _MESSAGE_TOKENS * (1 + len(ask.messages))
    if isinstance(ask, ScoreAsk):
        return n_bytes + max(len(ask.token_ids), _n_bytes([ask.text])) + ask.end_of_turn
    if isinstance(ask, ChooseAsk):
        spellings = (spelling for label in ask.labels for spelling in label.spellings)
        longest = max((_n_bytes([spelling]) for spelling in spellings), default=0)
        return n_bytes + _n_bytes([ask.prefix.text]) + longest
    return n_bytes


def _n_bytes(texts: Iterable[str]) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode(errors="surrogatepass")) for text in texts
    )


SPENT = "spent"
"""Key of what a run spent in its store."""


def keep_spent(store: Store, budget: Budget, *, is_ending: bool = False) -> None:
    """Write down what is spent, and what may be until the next time."""
    budget.pledge(is_ending=is_ending)
    store.set_meta(SPENT, msgspec.json.encode(budget.spent).decode())


def budget_of(prepared: Prepared, store: Store, bounds: schema.Budget | None = None) -> Budget:
    """Return the bounds of a recipe, or others, with what earlier calls spent.

    Raises:
        UsageError: If a bound on money can't be kept, because a model has no price.
        StoreError: If what was spent can't be read.
    """
    bounds = prepared.recipe.settings.budget if bounds is None else bounds
    unpriced = [name for name in prepared.identities if prepared.models[name].price is None]
    if bounds.money is not None and unpriced:
        with prepared.recipe.at("budget", "money"):
            what = "needs the `price` of each model (0 if free), and has none of "
            raise UsageError(what + ", ".join(unpriced))

    def keep(spent: Spent) -> None:
        store.set_meta(SPENT, msgspec.json.encode(spent).decode())
        store.flush()

    priced = {name: one.paid for name, one in prepared.models.items() if one.paid is not None}
    return Budget(bounds, (spent_by(store) or Spent()).after_its_call(), priced, keep)


def shares(recipe: schema.Recipe, n: int, n_at_once: int) -> list[str]:
    """Return the settings that give each of N shards its part of a recipe's bounds.

    Each has the Nth part of the `budget`, for all spend from it, and of requests per minute what
    those that run at a time leave to one. Whole numbers are rounded down.

    Raises:
        UsageError: If less than one request or token is left for a shard.
    """
    found = []
    for name, bound in recipe.settings.budget.model_dump(exclude_none=True).items():
        part = bound // n if isinstance(bound, int) else bound / n
        if not part and bound:
            raise UsageError(f"budget.{name}: {bound} leaves nothing for each of {n} shards")
        found.append(f"budget.{name}={part}")
    for model in recipe.models.values():
        rate = model.limits.requests_per_minute
        if rate is not None and n_at_once > 1:
            found.append(f"models.{model.name}.limits.requests_per_minute={rate / n_at_once}")
    return found


def spent_by(store: Store) -> Spent | None:
    """Return what all calls of a run spent; None where nothing was kept.

    Raises:
        StoreError: If that can't be read.
    """
    return _decoded(store.meta.get(SPENT), store.path)


def add_spent(texts: Mapping[Path, str | None]) -> str | None:
    """Return what several runs spent together, as a store keeps it; None where none kept it.

    Raises:
        StoreError: If that can't be read.
    """
    found = [spent for path, text in texts.items() if (spent := _decoded(text, path))]
    if not found:
        return None
    ended = [spent.after_its_call() for spent in found]
    amounts = ("requests", "prompt_tokens", "completion_tokens", "money", "hours")
    lost = (
        sum(part)
        for part in zip(*(msgspec.structs.astuple(one.lost) for one in ended), strict=True)
    )
    sums: dict[str, Any] = {name: sum(getattr(one, name) for one in ended) for name in amounts}
    total = Spent(**sums, lost=Most(*lost), bound=numbers.bound({one.bound for one in ended}))
    return msgspec.json.encode(total).decode()


def _decoded(text: str | None, path: Path) -> Spent | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=Spent)
    except msgspec.MsgspecError as error:
        raise damaged(f"{path}: what was spent is", error) from error
