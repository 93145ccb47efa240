"""Admission: who may send what, and when. Pure: every call takes `now`, nothing waits here.

One queue a model, in the order of `orchestrator.scheduler.ready`: the oldest units are finished
first, and requests that share their prompts' beginning stay together.
A model whose server can't be reached, or refuses whoever asks (429, 503 and the like), is down:
nothing is sent but one trial at a time, and after a while it is dead: all its requests fail. If a
request that was sent before is answered all the same, the server takes so many at a time and no
more: then that is how many it gets. A refusal that others may meet too puts a model in doubt: what
is in flight and then a few trials, one at a time, show whether it answers anything; if not, it is
dead too. No other model notices any of this.
"""

import heapq
import logging

import msgspec

from orchestrator import numbers
from orchestrator.ask import Request
from orchestrator.records import ACCOUNT, REQUEST, SERVER, UNCLEAR, UNREACHED, Failure, Outcome
from orchestrator.scheduler.ready import Ready, retry_wait_s

_log = logging.getLogger(__name__)

# Characters of a server's words that a warning repeats.
_SAID = 200
# Refused one after the other with nothing answered, they end a model that is in doubt.
_TRIALS = 4
# Errors of its own must last so long, seconds: a server that starts has them for a while.
_BROKEN_S = 10.0
_OVERLOADED = frozenset({429, 503})
# Of gateways and servers that are not there yet, or not for now.
_AWAY = frozenset({502, 503, 504})
# Causes of failures to which no server has said anything.
_SILENT = UNREACHED | {"connection", "timeout"}
# Of those, what a gateway also says of one request that its server does not survive or end in time.
_GATEWAYS = frozenset({502, 504})
# Where few are left, and so many times as many were answered, they wait no longer: what a gateway
# says of them is more likely theirs.
_MOST_ANSWERED, _FEW_WAIT_S = 4, 60.0
# How long a server may be down: one that was never there, and one that was or says it will be.
_NEVER_THERE_S = 30.0
_RETURNS_S = 600.0
# Of trials of a server that is down, and the longest wait that a server may ask for.
_FIRST_TRIAL_S, _MAX_TRIAL_S = 0.25, 5.0
_MOST_ASKED_S = 600.0
# A server that is down for so long is worth a sentence.
_SAID_AFTER_S = 5.0
# Of so many requests that were refused together, and no fewer than are served, it is learnt that a
# server takes no more: single refusals have other reasons.
_MANY = 2
# Answers before a server that takes only some requests at a time is tried with an eighth more;
# doubled each time that it takes them not.
_TRUST, _MOST_TRUST = 16, 4096


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one model.

    Attributes:
        max_in_flight: Requests that the server has at a time.
        dead_after_s: How long a server may be down before its requests fail; None for as long as is
            sensible by what is known of it.
        max_attempts: Attempts of a request after transient failures.
    """

    max_in_flight: int = 64
    dead_after_s: float | None = None
    max_attempts: int = 5


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

    Attributes:
        limits: Its bounds.
        ready: Requests to be sent.
        delayed: Requests that wait for their next attempt: when, and a number.
        in_flight: Requests that the server has.
        quiet_since: When it last ended one, or got one while it had none.
        down_since: When it went out of reach or began to refuse everything; None while it serves.
        was_there: There was a connection to it in this call.
        must_connect: It may come back as another one, so the next trial connects anew.
        is_on_trial: The request in flight is a trial.
        is_said: A warning has said that it is down.
        next_trial: When.
        trial_wait_s: Before the trial after that.
        n_refused: Requests that were refused, or lost their connection, since the last answer.
        n_left: Requests that were still in flight at the last of these.
        permits: Requests that the server takes at a time; None where it has refused none.
        trust: Answers before it is tried with more.
        n_trusted: Answers since `permits` was changed.
        n_doubts: Refusals since the last answer that may be the model's.
        doubted_since: When the first of them came.
        n_trials: Requests that were sent since it is in doubt whether the model answers at all;
            None while it is in none.
        unsure: Requests that were refused since its last answer, and how: theirs, or the model's.
        dead: Why it is given up.
        is_held: It is sent nothing for now.
    """

    limits: Limits
    ready: Ready = msgspec.field(default_factory=Ready)
    delayed: list[tuple[float, int, Request]] = []
    in_flight: int = 0
    quiet_since: float = 0.0
    down_since: float | None = None
    was_there: bool = False
    must_connect: bool = False
    is_on_trial: bool = False
    is_said: bool = False
    next_trial: float = 0.0
    trial_wait_s: float = 0.0
    n_refused: int = 0
    n_left: int = 0
    permits: int | None = None
    trust: int = _TRUST
    n_trusted: int = 0
    n_doubts: int = 0
    doubted_since: float = 0.0
    n_trials: int | None = None
    unsure: list[tuple[Request, Failure]] = []
    dead: Failure | None = None
    is_held: bool = False
    n_done: int = 0
    n_failed: int = 0
    n_retried: int = 0
    n_overloads: int = 0

    @property
    def most_in_flight(self) -> int:
        """Requests that the server may have at a time now."""
        most = self.limits.max_in_flight
        return most if self.permits is None else min(most, self.permits)

    @property
    def n_queued(self) -> int:
        """Requests that wait to be sent, those between two attempts included."""
        return len(self.ready) + len(self.delayed)


class Core:
    """The queues of all models.

    Attributes:
        paused: Nothing is sent; what is in flight ends as ever.
        is_full: Nothing is sent before a request in flight has ended.
    """

    def __init__(self, limits: dict[str, Limits]) -> None:
        self.models = {name: ModelState(limit) for name, limit in limits.items()}
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
        if state.in_flight >= state.most_in_flight:
            return None
        if state.down_since is not None:
            if state.in_flight or now < state.next_trial:
                return None
            state.is_on_trial = True
        if state.n_trials is not None:
            if state.in_flight:
                return None
            state.n_trials += 1
        if not state.in_flight:
            state.quiet_since = now
        state.in_flight += 1
        request = state.ready.pop(now)
        request.attempts += 1
        return request

    def put_back(self, request: Request, now: float) -> None:
        """Undo `take`: the request was not sent."""
        state = self.models[request.ask.model]
        state.in_flight -= 1
        state.is_on_trial = False
        if state.n_trials:
            state.n_trials -= 1
        request.attempts -= 1
        state.ready.push(request, now)

    def done(
        self, request: Request, outcome: Outcome | Failure, now: float
    ) -> list[Settled | Retried]:
        """An attempt has ended: what follows for this request, and others it tells something of."""
        state = self.models[request.ask.model]
        state.in_flight -= 1
        state.quiet_since = now
        was_trial, state.is_on_trial = state.is_on_trial, False
        if not isinstance(outcome, Failure):
            if state.n_refused or state.permits is not None:
                self._learn(request.ask.model, was_trial=was_trial)
            if state.down_since is not None:
                self._is_back(request.ask.model)
            state.n_trials, state.n_doubts = None, 0
            state.n_done += 1
            return [Settled(request, outcome), *self._tell(state)]
        if state.dead is not None:
            return [self._settle_dead(state, request)]
        if outcome.status in _OVERLOADED or outcome.cause == "timeout":
            state.n_overloads += 1
        wait = retry_wait_s(outcome, request.attempts, state.limits.max_attempts)
        is_away = self._is_away(state, outcome)
        is_last = wait is None and not outcome.permanent and not is_away
        if self._is_refused(state, outcome, now, is_last=is_last):
            whose = UNCLEAR if outcome.scope == REQUEST else outcome.scope
            why = msgspec.structs.replace(outcome, scope=whose)
            return [*self.kill(request.ask.model, why), self._settle_dead(state, request)]
        if self._is_refusal(outcome) or outcome.cause == "connection":
            state.n_refused += 1
            state.n_left = state.in_flight
        if is_away:
            return self._unreachable(state, request, outcome, now)
        if outcome.status and state.down_since is not None:
            self._is_back(request.ask.model)
        if wait is None and outcome.scope == UNCLEAR and outcome.permanent:
            state.unsure.append((request, outcome))
            return self._tell(state)
        if wait is None:
            state.n_failed += 1
            return [Settled(request, outcome), *self._tell(state)]
        return [self._delay(state, request, outcome, now + wait)]

    @staticmethod
    def _tell(state: ModelState) -> list[Settled | Retried]:
        """Settle what was refused since the last answer: as the requests' once one is answered.

        Where none is left to be answered, a few are theirs if others were answered before.
        """
        if not state.unsure or (state.n_doubts and (state.in_flight or state.n_queued)):
            return []
        is_own = state.n_done > 0 and state.n_doubts < _TRIALS
        unsure, state.unsure = state.unsure, []
        state.n_failed += len(unsure)
        return [Settled(one, msgspec.structs.replace(why, permanent=is_own)) for one, why in unsure]

    @staticmethod
    def _is_refused(state: ModelState, failure: Failure, now: float, *, is_last: bool) -> bool:
        """Return whether a failure shows that the model answers nobody until somebody acts.

        While it is in doubt, requests are sent one at a time. Of a model that has answered, several
        in a row put it in doubt; of another one, also a request whose attempts are used up.
        """
        # Where others were answered, an account's state may be this request's: too dear a one.
        if failure.scope == SERVER or (failure.scope == ACCOUNT and not state.n_done):
            return True
        if failure.scope == REQUEST and (state.n_done or not is_last):
            return False
        state.doubted_since = state.doubted_since if state.n_doubts else now
        state.n_doubts += 1
        if state.n_trials is None and (not state.n_done or state.n_doubts >= _TRIALS):
            state.n_trials = 0
        lasts = failure.scope != REQUEST or now >= state.doubted_since + _BROKEN_S
        return lasts and (state.n_trials or 0) >= _TRIALS

    @staticmethod
    def _is_refusal(failure: Failure) -> bool:
        is_away = failure.cause in UNREACHED or failure.status in _AWAY
        return is_away or failure.cause == "rate_limited"

    @staticmethod
    def _is_away(state: ModelState, failure: Failure) -> bool:
        """Return whether a failure says something of the server only, and is no attempt.

        Where others are answered the request may be to blame: one that kills its connection, or
        whose gateway gives up (502, 504), each time must end. So what a gateway says right after an
        answer is an attempt.
        """
        if failure.cause == "connection":
            is_limited = state.permits is not None and state.in_flight > 0
            return not state.n_done or is_limited
        is_own = failure.status in _GATEWAYS and state.n_done > 0 and not state.n_refused
        return Core._is_refusal(failure) and not is_own

    def _is_back(self, model: str) -> None:
        state = self.models[model]
        state.down_since, state.must_connect = None, False
        if state.is_said:
            state.is_said = False
            _log.warning("%s is back", model, extra={"model": model})

    def _learn(self, model: str, *, was_trial: bool) -> None:
        state = self.models[model]
        n_refused, state.n_refused = state.n_refused, 0
        if n_refused >= max(_MANY, state.n_left) and state.n_left and not was_trial:
            # It has refused the others, and served these.
            if state.permits is not None:
                state.trust = min(2 * state.trust, _MOST_TRUST)
            state.permits, state.n_trusted = state.n_left, 0
            _log.info("%s takes %d requests at a time", model, state.permits)
            return
        state.n_trusted += 1
        if state.permits is None or state.n_trusted < state.trust:
            return
        state.permits, state.n_trusted = state.permits + max(1, state.permits // 8), 0
        if state.permits >= state.limits.max_in_flight:
            state.permits, state.trust = None, _TRUST

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
        state.is_on_trial = False
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
        """Delay a request that nobody took, not counting the attempt; give up a dead model."""
        model = request.ask.model
        request.attempts -= 1
        state.must_connect = state.must_connect or failure.cause != "rate_limited"
        if state.down_since is None:
            state.down_since = now
            state.trial_wait_s = _FIRST_TRIAL_S
        elif now >= state.next_trial:
            state.trial_wait_s = min(2 * state.trial_wait_s, _MAX_TRIAL_S)
        down_s = now - state.down_since
        patience_s, asked_s = self._patience_s(state, failure), failure.retry_after_s or 0.0
        is_long = asked_s > max(patience_s, _MOST_ASKED_S)
        n_left = state.n_queued + state.in_flight + 1
        is_few = _MOST_ANSWERED * n_left <= state.n_done
        if down_s >= _FEW_WAIT_S and failure.status in _GATEWAYS and is_few:
            state.n_failed += 1
            return [Settled(request, failure)]
        if down_s >= patience_s or is_long:
            said = f"{failure.message} (it asks to wait {numbers.duration(asked_s)})"
            failure = msgspec.structs.replace(failure, message=said) if is_long else failure
            return [*self.kill(model, failure), self._settle_dead(state, request)]
        if down_s >= _SAID_AFTER_S and not state.is_said:
            state.is_said = True
            said = failure.message[:_SAID]
            how = "waiting for %s, up to %.0f s (limits.dead_after_s): %s"
            _log.warning(how, model, patience_s, said, extra={"model": model})
        state.next_trial = now + max(state.trial_wait_s, min(asked_s, _MOST_ASKED_S))
        # Every few trials another request is tried: it may be this one that is refused.
        is_others_turn = state.n_refused and state.n_refused % _TRIALS == 0 and state.ready
        behind_s = state.trial_wait_s if is_others_turn else 0.0
        return [self._delay(state, request, failure, state.next_trial + behind_s)]

    @staticmethod
    def _patience_s(state: ModelState, failure: Failure) -> float:
        """How long a model may be down: what was there, or says that it will be, may come back."""
        if state.limits.dead_after_s is not None:
            return state.limits.dead_after_s
        will_be = failure.status and Core._is_refusal(failure)
        return _RETURNS_S if state.was_there or will_be else _NEVER_THERE_S

    def _settle_dead(self, state: ModelState, request: Request) -> Settled:
        state.n_failed += 1
        return Settled(request, state.dead or Failure("dead_server", "the server is gone"))

    def kill(self, model: str, why: Failure) -> list[Settled | Retried]:
        """Declare a model dead; all its queued requests fail."""
        state = self.models[model]
        said = why.message[:_SAID]
        _log.warning("stopped using %s in this call: %s", model, said, extra={"model": model})
        is_silent = why.cause in _SILENT and why.scope == REQUEST and not why.status
        cause = "dead_server" if is_silent else why.cause
        state.dead = Failure(cause, f"{model} cannot be used: {why.message}", scope=why.scope)
        late, unsure = [entry[2] for entry in state.delayed], [one for one, _ in state.unsure]
        waiting = sorted([*state.ready.clear(), *late, *unsure], key=lambda one: one.position)
        state.delayed, state.unsure = [], []
        return [self._settle_dead(state, request) for request in waiting]

    def restarted(self, model: str, now: float) -> None:
        """Note that a model's server was started: from now on it counts as out of reach.

        Who starts it bounds how often; that a start takes minutes must not use up `dead_after_s`.
        """
        state = self.models[model]
        if state.down_since is not None:
            state.down_since = now

    def quiet_s(self, model: str, now: float) -> float:
        """Return for how long a model has ended none of its requests; 0 while it has none."""
        state = self.models[model]
        return now - state.quiet_since if state.in_flight else 0.0

    def limit(self, model: str) -> int:
        """Return how many requests a model's servers may have at a time."""
        return self.models[model].limits.max_in_flight

    def wake_at(self, model: str) -> float | None:
        """Return the time at which a model becomes due without an event; None for never."""
        state = self.models[model]
        if self.paused or self.is_full or state.is_held:
            return None
        due = [state.delayed[0][0]] if state.delayed else []
        if state.ready and state.down_since is not None and not state.in_flight:
            due.append(state.next_trial)
        return min(due, default=None)

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
