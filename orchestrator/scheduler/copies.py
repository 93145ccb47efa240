"""Several servers of one model: which of them is asked, who has tried what, which is suspect. Pure.

Requests of one item share their prompts' beginning, so they go to the server that had the first of
them, as long as that has no more than 1.25 times the mean load; then another takes its share of the
item too. What is new goes to the least loaded.

A request that fails on one server is asked of the others before that counts. If one of them answers
it, the failure was the server's. One that alone fails several requests in a row is *suspect*: it is
out of use but for a trial from time to time, and back with its first answer. One that answers
nothing while others do is suspect too, and what it has is asked of them as well. So no kind of
failure needs a rule of its own, and only what every server refuses is a fact about the request.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from orchestrator.backend import Backend
from orchestrator.records import Failure

# What a server may have of the mean load before an item that it knows goes to another one too.
_MOST_LOAD: Final = 1.25
# Items whose servers are remembered; far more than are under way.
_ITEMS: Final = 4096
# Requests in a row that a server alone fails before it is suspect: one may be an accident.
_ALONE: Final = 3
# Before the first trial of a suspect; doubled each time.
_FIRST_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 30.0
# A server is silent after so many times the longest wait for an answer that was seen.
_TIMES_LONGEST: Final = 3.0
# A suspect on trial is silent after this or the same multiple, whichever is more.
_SILENT_ON_TRIAL_S: Final = 1.0

SILENT_AFTER_S: Final = 30.0
"""How long a server that has requests may end none while others answer, unless it is set."""

Tried = dict[int, Failure]
"""What servers said to a request, by number."""


class Copy(msgspec.Struct, eq=False):
    """One of the servers.

    Attributes:
        number: From 0.
        backend: The connection to it; None while it can't be reached.
        is_held: It gets nothing new: who answers there is being found out.
        in_flight: Requests that it has.
        n_owed: Requests that it failed and that others have now: a server that fails at once would
            look idle.
        n_alone: Requests in a row that it failed and another answered.
        has_answered: It has answered a request since it was connected.
        trial_at: When a suspect gets its next trial; None while it is in use.
        wait_s: Before the trial after that.
        is_on_trial: A suspect has a request.
        quiet_since: When it last ended a request, or got one while it had none.
    """

    number: int
    backend: Backend | None = None
    is_held: bool = False
    in_flight: int = 0
    n_owed: int = 0
    n_alone: int = 0
    has_answered: bool = False
    trial_at: float | None = None
    wait_s: float = _FIRST_WAIT_S
    is_on_trial: bool = False
    quiet_since: float = 0.0

    @property
    def is_there(self) -> bool:
        """True while it can be reached."""
        return self.backend is not None

    @property
    def is_suspect(self) -> bool:
        """True while it is out of use."""
        return self.trial_at is not None

    @property
    def is_used(self) -> bool:
        """True if new requests go there."""
        return self.is_there and not self.is_held and self.trial_at is None


class Copies:
    """The servers of one model.

    `silent_after_s` is how long a server that has requests may end none, while others answer.

    Attributes:
        all: By number.
    """

    def __init__(self, n: int, silent_after_s: float) -> None:
        self.all = [Copy(number) for number in range(n)]
        self._silent_after_s = silent_after_s
        self._longest_s = 0.0
        self._answered_at = [float("-inf")] * n
        self._known: dict[int, list[Copy]] = {}

    # -- who is asked ------------------------------------------------------------------------------

    def begin(self, tried: Tried) -> None:
        """Begin another attempt of a request: where all in use have tried it, they may once more.

        Only what a server refuses for good, and that has answered others, it is not asked again.
        """
        if not tried or not all(copy.number in tried for copy in self.all if copy.is_used):
            return
        for number, failure in list(tried.items()):
            copy = self.all[number]
            if not (failure.permanent and copy.is_used and copy.has_answered):
                del tried[number]

    def choose(self, tried: Mapping[int, Failure], group: int | None, now: float) -> Copy | None:
        """Return the server for a request; None if there is none that may be sent it.

        A suspect comes first when its trial is due and another could take the request after it, and
        last where all others have failed it. `now` is in seconds of a monotonic clock; a `group` of
        None is that of a request that belongs to none.
        """
        left = [
            copy
            for copy in self.all
            if copy.is_there and not copy.is_held and copy.number not in tried
        ]
        used = [copy for copy in left if copy.trial_at is None]
        if len(used) == len(left):
            return self._share_out(used, group)
        due = (copy for copy in left if copy.trial_at is not None and copy.trial_at <= now)
        trial = next((copy for copy in due if not copy.is_on_trial), None)
        if used:
            return self._share_out(used, group) if trial is None else trial
        return min(left, key=_load, default=None)

    def _share_out(self, used: Sequence[Copy], group: int | None) -> Copy | None:
        if group is None or not used:
            return min(used, key=_load, default=None)
        known = self._known.pop(group, [])
        # What is used is put at the end, so that the first is the one to be forgotten.
        self._known[group] = known
        if len(self._known) > _ITEMS:
            del self._known[next(iter(self._known))]
        mean = (sum(map(_load, used)) + 1) / len(used)
        warm = min((copy for copy in known if copy in used), key=_load, default=None)
        if warm is not None and _load(warm) + 1 <= max(_MOST_LOAD * mean, 1):
            return warm
        least = min(used, key=_load)
        if least not in known:
            known.append(least)
        return least

    # -- what became of it -------------------------------------------------------------------------

    def sent(self, copy: Copy, now: float) -> None:
        """Note that a server gets a request."""
        if not copy.in_flight:
            copy.quiet_since = now
        copy.in_flight += 1
        copy.is_on_trial = copy.is_suspect

    def left(self, copy: Copy) -> None:
        """Note that a request is no longer with a server, whatever became of it."""
        copy.in_flight -= 1
        if not copy.in_flight:
            copy.is_on_trial = False

    def answered(
        self, copy: Copy, tried: Mapping[int, Failure], took_s: float, now: float
    ) -> list[Copy]:
        """Note an answer; return the servers that are suspect from now on.

        `took_s` and `now` are seconds, by a monotonic clock.
        """
        copy.n_alone, copy.has_answered, copy.is_on_trial = 0, True, False
        copy.trial_at, copy.wait_s = None, _FIRST_WAIT_S
        copy.quiet_since = self._answered_at[copy.number] = now
        self._longest_s = max(self._longest_s, took_s)
        found = []
        for number, failure in tried.items():
            other = self.all[number]
            other.n_alone += 1
            if other.is_there and other.n_alone >= _ALONE and not other.is_suspect:
                self._suspect(other, failure, now)
                found.append(other)
        return found

    def failed(self, copy: Copy, tried: Tried, failure: Failure, now: float) -> None:
        """Note that a server failed a request, which others may be asked now."""
        copy.quiet_since = now
        tried[copy.number] = failure
        if copy.trial_at is not None and copy.trial_at <= now:
            self._suspect(copy, failure, now)

    def _suspect(self, copy: Copy, failure: Failure, now: float) -> None:
        wait_s = copy.wait_s
        copy.wait_s = min(2 * wait_s, _MAX_WAIT_S)
        copy.trial_at = now + max(wait_s, min(failure.retry_after_s or 0.0, 600.0))

    def silent(self, now: float) -> list[tuple[Copy, float]]:
        """Return the servers that have gone silent, and for how long; they are suspect now.

        Silent is who has requests and has ended none for long, while another has answered.
        """
        found = []
        for copy in self.all:
            quiet_s = now - copy.quiet_since
            least_s = _SILENT_ON_TRIAL_S if copy.is_suspect else self._silent_after_s
            if not copy.in_flight or quiet_s <= max(least_s, _TIMES_LONGEST * self._longest_s):
                continue
            if max(self._answered_at) > copy.quiet_since:
                copy.quiet_since = now
                self._suspect(copy, Failure("timeout", ""), now)
                found.append((copy, quiet_s))
        return found

    def verdict(self, tried: Mapping[int, Failure]) -> Failure | None:
        """Return what the failures of a request on every server that is there come to.

        None if no server has tried it. It is permanent only if every server of the model refused it
        for good. While none is there that has shown that it can answer, the model is out of reach.
        """
        if not tried:
            return None

        def standing(number: int) -> tuple[bool, bool, bool]:
            copy = self.all[number]
            return copy.is_suspect, not copy.has_answered, not tried[number].retriable

        best = min(tried, key=standing)
        failure, all_of_them = tried[best], tried.values()
        n, n_all = len(tried), len(self.all)
        # Servers refuse a request alike: all for good, or all whoever asks.
        is_alike = len({one.permanent for one in all_of_them}) == 1
        are_final = not any(one.retriable for one in all_of_them)
        if n == n_all and (failure.retriable or (is_alike and are_final)):
            return failure
        why = "not all refuse it for good" if n == n_all else "the others are out of reach"
        said = f"{failure.message} (from {n} of {n_all} servers; {why})"
        if n < n_all and (self.all[best].is_suspect or not self.all[best].has_answered):
            return Failure("unreachable", said)
        return Failure(failure.cause, said, retry_after_s=failure.retry_after_s)

    # -- servers that come and go ------------------------------------------------------------------

    def connected(self, copy: Copy, backend: Backend) -> None:
        """Note that a server is there, perhaps for the first time."""
        copy.backend, copy.has_answered, copy.n_alone = backend, False, 0
        copy.trial_at, copy.wait_s = None, _FIRST_WAIT_S

    @property
    def n_there(self) -> int:
        """Servers that can be reached."""
        return sum(copy.is_there for copy in self.all)

    @property
    def n_used(self) -> int:
        """Servers that share the load, those that are held for a moment included; at least 1."""
        return max(1, sum(copy.is_there and not copy.is_suspect for copy in self.all))


def _load(copy: Copy) -> int:
    return copy.in_flight + copy.n_owed
