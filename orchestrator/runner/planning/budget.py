"""Spending and its bounds: requests, tokens, money, hours of a run, over all its calls.

Tokens and money are known only when an answer is there. So what a request may take at most is
reserved before it is sent, and a request is sent only if it fits beside all that is spent and
reserved. Where it does not fit, it waits for requests in flight, which mostly take less than was
reserved for them; when nothing is in flight, the run stops.

A bound can still be exceeded by what no client knows beforehand: tokens that a server adds to a
prompt beyond what its earlier answers showed, tokens generated beyond `max_tokens` (hidden
reasoning), and tokens billed for attempts that failed, of which nothing is reported.
"""

from collections.abc import Iterable

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
from orchestrator.records import Choice, Failure, Generation, Outcome, Rewards, Scored
from orchestrator.scheduler.admission import Admission

# Tokens that a chat template may add, to a prompt and to each of its messages, before the first
# answer shows how many there are: those of common templates, with the default system prompts that
# some have, are fewer.
_TEMPLATE_TOKENS = 64
_MESSAGE_TOKENS = 16
# Sums of floats differ from the bound in their last digits.
_ROUNDING = 1 + 1e-9


class Price(msgspec.Struct, frozen=True):
    """Money for a million tokens."""

    input: float = 0.0
    output: float = 0.0

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the price of tokens."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6


class Spent(msgspec.Struct):
    """Resources that a run has spent so far; kept in the store between calls."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0
    hours: float = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens together."""
        return self.prompt_tokens + self.completion_tokens


class Bounds(msgspec.Struct, frozen=True):
    """The most a run may use; None is no bound."""

    requests: int | None = None
    tokens: int | None = None
    money: float | None = None
    hours: float | None = None


def token_counts(outcome: Outcome | Failure) -> tuple[int, int]:
    """Prompt and completion tokens of an outcome; a failure counts as none.

    Each call of a choice reads the prompt and generates one token.
    """
    match outcome:
        case Generation():
            return outcome.n_prompt_tokens, outcome.n_completion_tokens
        case Scored():
            return outcome.n_prompt_tokens + int(outcome.token_ids.size), 0
        case Choice():
            return outcome.n_prompt_tokens * outcome.n_requests, outcome.n_requests
        case Rewards():
            return outcome.n_prompt_tokens, 0
        case _:
            return 0, 0


class _Seen(msgspec.Struct):
    """Sizes of a model's requests, as learnt from its answers.

    Attributes:
        added: Most tokens of a prompt beyond the bytes of its texts, those that were allowed for
            each message left out.
        calls: Most calls of a choice; 0 before the first.
    """

    added: int = _TEMPLATE_TOKENS
    calls: int = 0


class _Reserve(msgspec.Struct, frozen=True):
    tokens: int
    money: float


class Budget:
    """Counts what is spent and reserved, and says whether a request may be sent.

    Args:
        bounds: Of the run.
        spent: So far.
        prices: By model.
    """

    def __init__(
        self,
        bounds: Bounds,
        spent: Spent,
        prices: dict[str, Price],
    ) -> None:
        self._bounds = bounds
        self.spent = spent
        self._prices = prices
        self._hours_before = spent.hours
        self._is_reserving = bounds.tokens is not None or bounds.money is not None
        self._reserves: dict[bytes, _Reserve] = {}
        self._reserved_tokens = 0
        self._reserved_money = 0.0
        self._seen: dict[str, _Seen] = {}
        self._stopped_by = ""
        self._too_much: _Reserve | None = None

    def admit(self, request: Request, elapsed_s: float) -> Admission:
        """Count a request and reserve what it may take at most, if it may be sent.

        Args:
            request: To be sent now; `release` ends what is reserved for it.
            elapsed_s: Seconds since this call began.
        """
        self.run_for(elapsed_s)
        self._stopped_by = self._reached()
        if not self._stopped_by and self._is_reserving:
            needed = self._most(request.ask)
            self._stopped_by = self._exceeded_with(needed)
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
        return Admission.SEND

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
        prompt_tokens, completion_tokens = token_counts(outcome)
        spent, model = self.spent, request.ask.model
        spent.prompt_tokens += prompt_tokens
        spent.completion_tokens += completion_tokens
        price = self._prices.get(model)
        if price is not None:
            spent.money += price.of(prompt_tokens, completion_tokens)
        if self._is_reserving:
            seen = self._seen.setdefault(request.ask.model, _Seen())
            if isinstance(outcome, Choice):
                seen.calls = max(seen.calls, outcome.n_requests)
            if isinstance(outcome, Generation | Choice | Rewards):
                seen.added = max(seen.added, outcome.n_prompt_tokens - _allowed(request.ask))
        return prompt_tokens, completion_tokens

    def words(self) -> str:
        """The bound that stopped the run, with what is spent now."""
        spent, bounds = self.spent, self._bounds
        match self._stopped_by:
            case "requests":
                return f"budget.requests: {spent.requests} of {bounds.requests} sent"
            case "hours":
                return f"budget.hours: {spent.hours:.2f} of {bounds.hours:.2f} used"
            case "tokens":
                said = f"budget.tokens: {spent.tokens} of {bounds.tokens} used"
                more = f"take up to {self._next.tokens}"
            case "money":
                used, most, next_one = map(
                    numbers.money, (spent.money, bounds.money, self._next.money)
                )
                said, more = f"budget.money: {used} of {most} spent", f"cost up to {next_one}"
            case _:
                return ""
        return said if self._reached() else f"{said}, and the next request may {more}"

    @property
    def money(self) -> float | None:
        """Money spent; None if no model has a price."""
        return self.spent.money if any(p.input or p.output for p in self._prices.values()) else None

    def run_for(self, elapsed_s: float) -> None:
        """Count the time of this call, in seconds since it began."""
        self.spent.hours = self._hours_before + elapsed_s / 3600.0

    @property
    def _next(self) -> _Reserve:
        return self._too_much or _Reserve(0, 0.0)

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

    def _exceeded_with(self, needed: _Reserve) -> str:
        """The bound that might be exceeded if so much more were in flight; empty for none."""
        bounds = self._bounds
        tokens = self.spent.tokens + self._reserved_tokens + needed.tokens
        if bounds.tokens is not None and tokens > bounds.tokens:
            return "tokens"
        money = self.spent.money + self._reserved_money + needed.money
        if bounds.money is not None and money > bounds.money * _ROUNDING:
            return "money"
        return ""

    def _most(self, ask: AnyAsk) -> _Reserve:
        """The most that a request may take: no tokenizer makes more tokens of a text than bytes."""
        seen = self._seen.get(ask.model) or _Seen()
        prompt, completion = _allowed(ask), 0
        match ask:
            case GenerateAsk():
                prompt, completion = prompt + seen.added, ask.sampling.max_tokens
            case ScoreAsk():
                prompt, completion = prompt + seen.added, 1
            case ChooseAsk():
                calls = seen.calls or len(ask.labels)
                prompt, completion = (prompt + seen.added) * calls, calls
            case RewardAsk():
                prompt += seen.added
            case SimilarityAsk():
                prompt = 0
        price = self._prices.get(ask.model, Price())
        return _Reserve(prompt + completion, price.of(prompt, completion))


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
    """Bytes of texts in UTF-8."""
    return sum(
        len(text) if text.isascii() else len(text.encode(errors="surrogatepass")) for text in texts
    )
