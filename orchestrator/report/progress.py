"""Progress of a run: at one moment, its pace, the time left, and how complete it is."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator import numbers
from orchestrator.records import Standing

TROUBLED: Final = ("down", "dead")
"""States of a model that is out of reach."""


class Cost(msgspec.Struct):
    """Resources that all calls of a run have used.

    Attributes:
        requests: Sent, retries included.
        prompt_tokens: In the requests.
        completion_tokens: Generated.
        hours: Time that calls ran.
        money: In the recipe's currency; None where no model has a price.
        bound: Of tokens and `money` that a server did not say; see `numbers.bound`.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    hours: float = 0.0
    money: float | None = None
    bound: str = ""

    def words(self) -> tuple[str, ...]:
        """Return the amounts in words; empty where nothing was spent."""
        if not self.requests:
            return ()
        return (
            numbers.counted(self.requests, "request"),
            f"{_tokens(self.prompt_tokens, self.bound)} in",
            f"{_tokens(self.completion_tokens, self.bound)} out",
            numbers.duration(self.hours * 3600),
            *numbers.spent(self.money, self.bound),
        )


def _tokens(n: int, bound: str) -> str:
    return f"{numbers.known(n, bound)} {'token' if n == 1 else 'tokens'}"


class ModelProgress(msgspec.Struct, frozen=True):
    """One model.

    Attributes:
        name: In the recipe.
        state: "idle" (nothing asked yet), "starting", "ready", "down" (out of reach, being tried)
            or "dead" (given up).
        in_flight: Requests the server has now.
        limit: Bound on that.
        queued: Requests that wait, those between two attempts included.
        done: Requests answered in this call.
        failed: Requests that failed for good in this call.
        retried: Attempts that failed and were tried again.
        prompt_tokens: In this call; None where the server does not say.
        completion_tokens: As above.
        waiting: Requests in the server's own queue; None where it does not say.
        cache_hits: Share of prompt tokens that it found in its prefix cache in this call; None
            where it does not say.
        units_done: Units that ask this model last and that this call did.
        units_left: Those that are still to be done.
        fault: Why it was given up; empty for one that is used.
    """

    name: str
    state: str
    in_flight: int
    limit: int
    queued: int
    done: int
    failed: int
    retried: int
    prompt_tokens: int | None
    completion_tokens: int | None
    waiting: int | None = None
    cache_hits: float | None = None
    units_done: int = 0
    units_left: int = 0
    fault: str = ""


class StageProgress(msgspec.Struct, frozen=True):
    """The units of one method, or of the answers that come before one.

    Attributes:
        name: As in the column `method` of its rows.
        total: Units.
        stored: Done by earlier calls.
        done: Done by this call, failed ones included.
        failed: Of those, failed.
    """

    name: str
    total: int
    stored: int = 0
    done: int = 0
    failed: int = 0


class RankingProgress(msgspec.Struct, frozen=True):
    """The ranking of one method so far, over the prompts that this call finished.

    Attributes:
        method: Its name in the recipe.
        n_prompts: Prompts whose judgments are all there.
        standings: Best first.
        stops_early: Whether a stopping rule chooses what is asked, for which the intervals do not
            allow.
        untrusted: Judges that by their judgments so far can't be trusted, by the rule of the
            reports: with one of them the ranking means nothing.
        n_clusters: Clusters that the prompts are in; None where each stands alone.
        reasons: Of each of `untrusted`, what speaks against it.
    """

    method: str
    n_prompts: int
    standings: tuple[Standing, ...]
    stops_early: bool = False
    untrusted: tuple[str, ...] = ()
    n_clusters: int | None = None
    reasons: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The run at one moment.

    Attributes:
        run_dir: Where it is kept.
        elapsed_s: Since this call began.
        units_total: Units of the plan.
        units_stored: Done by earlier calls.
        units_done: Done by this call, failed ones included.
        units_failed: Of those, failed.
        units_failed_before: Failed in earlier calls, and not done since; known when a call ends.
        units_not_needed: Not asked, because they could change no order any more.
        units_open: Being evaluated.
        units_aside: Set aside until a model has room.
        requests_sent: Attempts of this call, those at another server included when one is lost.
        asks_found: Asks answered from the store.
        asks_copied: Asks answered by other runs, by run as the recipe names it.
        asks_joined: Asks that joined the same request in flight.
        models: One entry a model, in the recipe's order. The last status of a call that sent
            nothing has those of the last call that sent requests.
        stages: One entry a method and its answers, in the order of the plan.
        failures: Units that failed in this call by cause.
        stopping: Why the run is stopping; empty while it is not.
        paused: Whether it sends nothing until it is told to go on.
        rankings: Of the methods that compare models, as they form.
        money: Spent by all calls of this run; None where no model has a price.
        bound: Of tokens and `money` that a server did not say; see `numbers.bound`.
    """

    run_dir: str
    elapsed_s: float = 0.0
    units_total: int
    units_stored: int
    units_done: int = 0
    units_failed: int = 0
    units_failed_before: int = 0
    units_not_needed: int = 0
    units_open: int = 0
    units_aside: int = 0
    requests_sent: int = 0
    asks_found: int = 0
    asks_copied: dict[str, int] = {}
    asks_joined: int = 0
    models: tuple[ModelProgress, ...] = ()
    stages: tuple[StageProgress, ...] = ()
    failures: dict[str, int] = {}
    stopping: str = ""
    paused: bool = False
    rankings: tuple[RankingProgress, ...] = ()
    money: float | None = None
    bound: str = ""

    @property
    def units_left(self) -> int:
        """Units that are still to be done."""
        finished = self.units_stored + self.units_done
        return self.units_total - finished - self.units_not_needed


def foremost(models: Sequence[ModelProgress], most: int) -> list[ModelProgress]:
    """Of many models, those out of reach and those with work left first, in the recipe's order.

    They change seldom, so that lines do not jump.

    Args:
        models: In the recipe's order.
        most: How many to return.
    """
    late = [(one.state not in TROUBLED, one.units_left == 0) for one in models]
    chosen = sorted(range(len(models)), key=late.__getitem__)[:most]
    return [models[place] for place in sorted(chosen)]


def faults_of(progress: Progress) -> list[str]:
    """Why models were given up in a call, a sentence each; models of one fault are named once."""
    found: dict[str, list[str]] = {}
    for model in progress.models:
        if model.fault:
            found.setdefault(model.fault.removeprefix(f"{model.name} "), []).append(model.name)
    return [f"{', '.join(names)} {fault}" for fault, names in found.items()]


# The pace of a run: rates over the last seconds, and the time left that follows from them.
#
# Models work side by side, and a run ends when the last of them has ended. So the time left is that
# of the slowest: the units that wait for a model, at the pace at which it has ended such units.


# Rates follow the run within this many seconds; the end is judged by a longer stretch, because the
# pace of single items differs.
_RATE_SPAN_S: Final = 15.0
_ETA_SPAN_S: Final = 60.0
# Two snapshots nearer than this give no rate worth showing.
_MIN_SPAN_S: Final = 0.5
_MAX_SNAPSHOTS: Final = 600
# Units before which the end is not guessed: the first ones wait for servers to start.
_MIN_DONE: Final = 5


Rates = tuple[float | None, float | None, float | None]
"""Requests that ended, prompt tokens and completion tokens, a second; None while unknown."""


class Pace:
    """Keeps what is needed of the last minute of a run."""

    def __init__(self) -> None:
        self._snapshots: deque[Progress] = deque(maxlen=_MAX_SNAPSHOTS)
        # When the first units of a model had ended, and how many.
        self._first: dict[str, tuple[float, int]] = {}

    def add(self, progress: Progress) -> None:
        """Take the run's state at a later moment."""
        self._snapshots.append(progress)
        for model in progress.models:
            if model.units_done and model.name not in self._first:
                self._first[model.name] = progress.elapsed_s, model.units_done
        while self._snapshots[-1].elapsed_s - self._snapshots[0].elapsed_s > _ETA_SPAN_S:
            self._snapshots.popleft()

    def rates(self, name: str | None = None) -> Rates:
        """Of one model, or of all together."""
        before = self._before(_RATE_SPAN_S)
        if before is None:
            return None, None, None
        now = self._snapshots[-1]
        span = now.elapsed_s - before.elapsed_s
        old, new = _sums(before, name), _sums(now, name)
        requests, read, written = (
            None if a is None or b is None else (b - a) / span
            for a, b in zip(old, new, strict=True)
        )
        return requests, read, written

    def eta_s(self) -> float | None:
        """Seconds left of the slowest model; None while that is unknown.

        The pace is that of the last minute, or of the whole call for a model that has ended few
        units in it.
        """
        if not self._snapshots:
            return None
        now = self._snapshots[-1]
        if now.units_left <= 0:
            return 0.0
        waited_for = [model for model in now.models if model.units_left > 0]
        found = [self._eta_of(model, now.elapsed_s) for model in waited_for]
        known = [eta for eta in found if eta is not None]
        return max(known, default=None) if len(known) == len(found) else None

    def _eta_of(self, model: ModelProgress, now_s: float) -> float | None:
        """Seconds until a model has ended its units."""
        if model.units_done < _MIN_DONE:
            return None
        before = self._before(_ETA_SPAN_S)
        if before is not None:
            then = next((one for one in before.models if one.name == model.name), None)
            done = model.units_done - (0 if then is None else then.units_done)
            if done >= _MIN_DONE:
                return model.units_left * (now_s - before.elapsed_s) / done
        since_s, first = self._first.get(model.name, (0.0, 0))
        done = model.units_done - first
        return model.units_left * (now_s - since_s) / done if done > 0 else None

    def _before(self, span_s: float) -> Progress | None:
        """The oldest snapshot within the span before the last one."""
        if not self._snapshots:
            return None
        end = self._snapshots[-1].elapsed_s
        for snapshot in self._snapshots:
            if end - snapshot.elapsed_s <= span_s:
                return snapshot if end - snapshot.elapsed_s >= _MIN_SPAN_S else None
        return None


def _sums(progress: Progress, name: str | None) -> Sequence[int | None]:
    models = [model for model in progress.models if name is None or model.name == name]
    ended = sum(model.done + model.failed for model in models)
    return ended, *tokens_of(models)


def tokens_of(models: Sequence[ModelProgress]) -> tuple[int | None, int | None]:
    """Prompt and completion tokens of models; None where none that answered tells its own."""
    told = [(m.prompt_tokens, m.completion_tokens) for m in models if m.done or m.prompt_tokens]
    sides = zip(*told or [(0, 0)], strict=True)
    read, written = ([n for n in side if n is not None] for side in sides)
    return sum(read) if read else None, sum(written) if written else None


# Progress of a run, and its failed units: counted once, for every format.
#
# A unit has *ended* if it has rows. It has *failed* if one of its rows has: also where the next
# call asks again, because a server was out of reach. It is *left* if it has no rows and needs some.


class Completeness(msgspec.Struct, frozen=True):
    """Progress of a run, in units.

    Attributes:
        total: Units of the plan.
        ended: Of these, units with rows.
        failed: Of these, units with a failed row.
        not_needed: Units that a stopping rule has found to be not needed.
    """

    total: int = 0
    ended: int = 0
    failed: int = 0
    not_needed: int = 0

    @property
    def left(self) -> int:
        """Units that have no row yet and need one."""
        return max(0, self.total - self.ended - self.not_needed)

    def words(self, *, has_results: bool = True) -> str:
        """Return the warning to show before the results; empty for a run that is complete.

        Args:
            has_results: Whether results follow.
        """
        if not self.left:
            return ""
        needed = self.total - self.not_needed
        failed = f", {numbers.count(self.failed)} of them failed" if self.failed else ""
        left = f"Incomplete: {numbers.count(self.left)} of {numbers.counted(needed, 'unit')} remain"
        if not has_results:
            return f"{left}{failed}."
        return f"{left}; these results use the {numbers.count(self.ended)} completed ones{failed}."

    def as_json(self) -> dict[str, object]:
        """The counts as JSON values."""
        return {"complete": not self.left, **msgspec.to_builtins(self), "left": self.left}
