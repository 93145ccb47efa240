"""Spending and its bounds: requests, tokens, money, hours of a run, over all its calls."""

import msgspec

from orchestrator.records import Choice, Failure, Generation, Outcome, Scored


class Price(msgspec.Struct, frozen=True):
    """Money for a million tokens."""

    input: float = 0.0
    output: float = 0.0


class Spent(msgspec.Struct):
    """What a run has used up so far; kept in the store between calls."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0
    hours: float = 0.0


class Bounds(msgspec.Struct, frozen=True):
    """The most a run may use; None is no bound."""

    requests: int | None = None
    tokens: int | None = None
    money: float | None = None
    hours: float | None = None


def token_counts(outcome: Outcome | Failure) -> tuple[int, int]:
    """Prompt and completion tokens of an outcome; a failure counts as none."""
    match outcome:
        case Generation():
            return outcome.n_prompt_tokens, outcome.n_completion_tokens
        case Scored():
            return outcome.n_prompt_tokens + int(outcome.token_ids.size), 0
        case Choice():
            return outcome.n_prompt_tokens, 0
        case _:
            return 0, 0


class Budget:
    """Counts what is spent and says when a bound is reached.

    Requests are counted before they are sent, so their bound is never exceeded; tokens and money
    are known afterwards, so what is in flight at that moment still comes on top.
    """

    def __init__(self, bounds: Bounds, spent: Spent, prices: dict[str, Price]) -> None:
        self._bounds = bounds
        self.spent = spent
        self._prices = prices
        self._hours_before = spent.hours

    def reached(self, elapsed_s: float) -> str | None:
        """The bound that is reached, in words; None while there is room for one more request."""
        spent, bounds = self.spent, self._bounds
        self.run_for(elapsed_s)
        if bounds.requests is not None and spent.requests >= bounds.requests:
            return f"budget.requests: {spent.requests} of {bounds.requests} sent"
        tokens = spent.prompt_tokens + spent.completion_tokens
        if bounds.tokens is not None and tokens >= bounds.tokens:
            return f"budget.tokens: {tokens} of {bounds.tokens} used"
        if bounds.money is not None and spent.money >= bounds.money:
            return f"budget.money: {spent.money:.2f} of {bounds.money:.2f} spent"
        if bounds.hours is not None and spent.hours >= bounds.hours:
            return f"budget.hours: {spent.hours:.2f} of {bounds.hours:.2f} used"
        return None

    @property
    def money(self) -> float | None:
        """What was spent; None where no model has a price."""
        return self.spent.money if any(p.input or p.output for p in self._prices.values()) else None

    def run_for(self, elapsed_s: float) -> None:
        """Count the time of this call, in seconds since it began."""
        self.spent.hours = self._hours_before + elapsed_s / 3600.0

    def send(self) -> None:
        """Count a request that is being sent."""
        self.spent.requests += 1

    def receive(self, model: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of an outcome."""
        spent = self.spent
        spent.prompt_tokens += prompt_tokens
        spent.completion_tokens += completion_tokens
        price = self._prices.get(model)
        if price is not None:
            spent.money += (prompt_tokens * price.input + completion_tokens * price.output) / 1e6
