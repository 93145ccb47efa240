"""Admission: who may send what, and when. Pure: every call takes `now`, nothing waits here.

One queue a model, in the order of `orchestrator.scheduler.ready`: the oldest units are finished
first, and requests that share their prompts' beginning stay together.
A model whose server can't be reached is down: nothing is sent but one trial at a time, and after
`dead_after_s` it is dead: all its requests fail. A refusal that others may meet too puts a model in
doubt: what is in flight and then a few trials, one at a time, show whether it answers anything; if
not, it is dead too. No other model notices any of this.
"""

import heapq
import logging
from collections.abc import Iterable

import msgspec

from orchestrator.ask import Request
from orchestrator.records import REQUEST, UNCLEAR, UNREACHED, Failure, Outcome
from orchestrator.scheduler.ready import Ready
from orchestrator.scheduler.retry import RetryPolicy

_log = logging.getLogger(__name__)

# Characters of a server's words that a warning repeats.
_SAID = 200
# Refused one after the other with nothing answered, they end a model that is in doubt.
_TRIALS = 4
_OVERLOADED = frozenset({429, 503})


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one model.

    Attributes:
        max_in_flight: Requests that the server has at a time.
        dead_after_s: How long a server may be out of reach before its requests fail.
        max_attempts: Attempts of a request; the retry policy's where None.
        max_failures: Requests that may fail before the model is dead; None for any number.
    """

    max_in_flight: int = 64
    dead_after_s: float = 30.0
    max_attempts: int | None = None
    max_failures: int | None = None


class Settled(msgspec.Struct, frozen=True):
    """A request has ended: deliver it."""

    request: Request
    outcome: Outcome | Failure


class Retried(msgspec.Struct, frozen=True):
    """A request waits for its next attempt until `at` (monotonic seconds)."""

    request: Request
    failure: Failure
    at: float


class ModelState(msgspec.Struct):
    """Queue and counters of one model.

    `n_trials` counts the requests that were sent since it is in doubt whether the model answers at
    all; None while it is in none.
    """

    limits: Limits
    ready: Ready = msgspec.field(default_factory=Ready)
    delayed: list[tuple[float, int, Request]] = []
    in_flight: int = 0
    down_since: float | None = None
    next_trial: float = 0.0
    trial_wait_s: float = 0.0
    n_trials: int | None = None
    dead: Failure | None = None
    is_held: bool = False
    n_done: int = 0
    n_failed: int = 0
    n_retried: int = 0
    n_overloads: int = 0

    @property
    def n_queued(self) -> int:
        """Requests that wait to be sent, those between two attempts included."""
        return len(self.ready) + len(self.delayed)


class Core:
    """The queues of all models.

    Args:
        limits: By model.
        retry: Policy for failures of the moment.

    Attributes:
        paused: Nothing is sent; what is in flight ends as ever.
        is_full: Nothing is sent before a request in flight has ended.
    """

    def __init__(self, limits: dict[str, Limits], retry: RetryPolicy) -> None:
        self.models = {name: ModelState(limit) for name, limit in limits.items()}
        self._retry = retry
        self._n = 0
        self.paused = False
        self.is_full = False

    def submit(self, request: Request, now: float) -> Settled | None:
        """Queue a request; a dead model's fails at once."""
        state = self.models[request.ask.model]
        if state.dead is not None:
            state.n_failed += 1
            return Settled(request, state.dead)
        state.ready.push(request, now)
        return None

    def take(self, model: str, now: float) -> Request | None:
        """The next request to send to a model, if one may be sent now."""
        state = self.models[model]
        while state.delayed and state.delayed[0][0] <= now:
            due, _, request = heapq.heappop(state.delayed)
            state.ready.push(request, due)
        if self.paused or self.is_full or state.is_held or not state.ready:
            return None
        if state.in_flight >= state.limits.max_in_flight:
            return None
        if state.down_since is not None and (state.in_flight or now < state.next_trial):
            return None
        if state.n_trials is not None:
            if state.in_flight:
                return None
            state.n_trials += 1
        state.in_flight += 1
        request = state.ready.pop(now)
        request.attempts += 1
        return request

    def put_back(self, request: Request, now: float) -> None:
        """Undo `take`: the request was not sent."""
        state = self.models[request.ask.model]
        state.in_flight -= 1
        if state.n_trials:
            state.n_trials -= 1
        request.attempts -= 1
        state.ready.push(request, now)

    def done(
        self, request: Request, outcome: Outcome | Failure, now: float
    ) -> list[Settled | Retried]:
        """An attempt has ended: what follows, for this request and where the model died, others."""
        state = self.models[request.ask.model]
        state.in_flight -= 1
        if not isinstance(outcome, Failure):
            state.down_since = state.n_trials = None
            state.n_done += 1
            return [Settled(request, outcome)]
        if state.dead is not None:
            return [self._settle_dead(state, request)]
        if outcome.status in _OVERLOADED or outcome.cause == "timeout":
            state.n_overloads += 1
        if self._is_refused(state, outcome):
            return [*self.kill(request.ask.model, outcome), self._settle_dead(state, request)]
        # A connection that broke counts as the request's own attempt once the server is known to
        # answer: a request that kills its connection each time must end.
        if outcome.cause in UNREACHED or (outcome.cause == "connection" and not state.n_done):
            return self._unreachable(state, request, outcome, now)
        if outcome.status:
            state.down_since = None
        wait = self._retry.wait_s(outcome, request.attempts, state.limits.max_attempts)
        if wait is None:
            state.n_failed += 1
            return [Settled(request, outcome), *self._overspent(request.ask.model, outcome)]
        return [self._delay(state, request, outcome, now + wait)]

    def _is_refused(self, state: ModelState, failure: Failure) -> bool:
        """Return whether a failure shows that a model answers nobody."""
        if failure.scope != UNCLEAR:
            return failure.scope != REQUEST
        if state.n_trials is None:
            state.n_trials = 0
        return state.n_trials >= _TRIALS

    def _overspent(self, model: str, last: Failure) -> list[Settled | Retried]:
        """Return the effects of one more failure: none, or the end of the model."""
        state = self.models[model]
        most = state.limits.max_failures
        if most is None or state.n_failed < most:
            return []
        why = f"{state.n_failed} of its requests failed (limits.max_failures); the last: "
        return self.kill(model, Failure("failure_budget", why + last.message))

    def not_connected(
        self, request: Request, failure: Failure, now: float
    ) -> list[Settled | Retried]:
        """There is no connection to the model, so the request was not sent.

        Nothing of this may become the request's outcome: it is the server that is wrong.
        """
        if failure.cause == "rate_limited":
            return self.done(request, failure, now)
        state = self.models[request.ask.model]
        state.in_flight -= 1
        if state.dead is not None:
            return [self._settle_dead(state, request)]
        if not failure.retriable:
            return [*self.kill(request.ask.model, failure), self._settle_dead(state, request)]
        return self._unreachable(state, request, failure, now)

    def _delay(self, state: ModelState, request: Request, failure: Failure, at: float) -> Retried:
        self._n += 1
        state.n_retried += 1
        heapq.heappush(state.delayed, (at, self._n, request))
        return Retried(request, failure, at)

    def _unreachable(
        self, state: ModelState, request: Request, failure: Failure, now: float
    ) -> list[Settled | Retried]:
        """Delay a request without an answer, not counting the attempt; give up a dead model."""
        request.attempts -= 1
        if state.down_since is None:
            state.down_since = now
            state.trial_wait_s = 0.25
        elif now >= state.next_trial:
            state.trial_wait_s = min(2 * state.trial_wait_s, 5.0)
        if now - state.down_since >= state.limits.dead_after_s:
            return [*self.kill(request.ask.model, failure), self._settle_dead(state, request)]
        state.next_trial = now + state.trial_wait_s
        return [self._delay(state, request, failure, state.next_trial)]

    def _settle_dead(self, state: ModelState, request: Request) -> Settled:
        state.n_failed += 1
        return Settled(request, state.dead or Failure("dead_server", "the server is gone"))

    def kill(self, model: str, why: Failure) -> list[Settled | Retried]:
        """Declare a model dead; all its queued requests fail."""
        state = self.models[model]
        said = why.message[:_SAID]
        _log.warning("stopped using %s in this call: %s", model, said, extra={"model": model})
        cause = "dead_server" if why.scope == REQUEST else why.cause
        state.dead = Failure(cause, f"{model} cannot be used: {why.message}", scope=why.scope)
        waiting = [*state.ready.clear(), *(entry[2] for entry in state.delayed)]
        state.delayed.clear()
        waiting.sort(key=lambda request: request.position)
        return [self._settle_dead(state, request) for request in waiting]

    def restarted(self, model: str, now: float) -> None:
        """Note that a model's server was started: from now on it counts as out of reach.

        Who starts it bounds how often; that a start takes minutes must not use up `dead_after_s`.
        """
        state = self.models[model]
        if state.down_since is not None:
            state.down_since = now

    def has_answered(self, model: str) -> bool:
        """Return whether a request to a model was answered."""
        return self.models[model].n_done > 0

    def limit(self, model: str) -> int:
        """Return how many requests a model's servers may have at a time."""
        return self.models[model].limits.max_in_flight

    def set_limit(self, model: str, n: int) -> int:
        """Change how many requests a model's servers may have at a time; how many it was before.

        Those in flight beyond it end as ever.
        """
        state = self.models[model]
        before = state.limits.max_in_flight
        state.limits = msgspec.structs.replace(state.limits, max_in_flight=n)
        return before

    def wake_at(self, model: str) -> float | None:
        """Return the time at which a model becomes due without an event; None for never."""
        state = self.models[model]
        if self.paused or self.is_full or state.is_held:
            return None
        due = [state.delayed[0][0]] if state.delayed else []
        if state.ready and state.down_since is not None and not state.in_flight:
            due.append(state.next_trial)
        return min(due, default=None)

    def is_down(self, model: str) -> bool:
        """Return True if the server is unreachable; then one request at a time is a trial."""
        return self.models[model].down_since is not None

    def has_ready(self, model: str) -> bool:
        """Return True if a request of a model could be sent now."""
        state = self.models[model]
        return state.in_flight < state.limits.max_in_flight and self.n_ready(model) > 0

    def n_ready(self, model: str) -> int:
        """Requests of a model that could be sent now, if there were room."""
        state = self.models[model]
        is_stopped = self.paused or self.is_full or state.is_held
        is_closed = is_stopped or state.down_since is not None or state.n_trials is not None
        return 0 if is_closed else len(state.ready)

    def busy(self, model: str) -> bool:
        """Return True if anything is queued or in flight."""
        state = self.models[model]
        return bool(state.in_flight or state.n_queued)

    def in_flight(self, models: Iterable[str] | None = None) -> int:
        """Requests that servers have now."""
        return sum(self.models[name].in_flight for name in (models or self.models))
