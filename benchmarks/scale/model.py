"""The model of large runs, and its simulation; `benchmarks.scale.simulation` states it."""

import heapq
import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from benchmarks.scale.store_growth import pages, wrong

BLOCK: Final = 256
PER_ITEM: Final = 20
_IN_FLIGHT: Final = 64
_NOTHING: Final = 1e-6


class Constants(msgspec.Struct, frozen=True):
    """Measured costs.

    Attributes:
        start_s: Processor time of a call.
        request_s: Processor time of a request to a small store, its share of all else included.
        wrong_s: Of a request that the filter of keys takes for a known one.
        page_s: Of a page of the index that is read and written for a key.
        page_bytes: Written for such a page.
        request_bytes: Of the store, for a request.
        sending_mb: A client's memory while it sends.
        sending_bytes: More of it for each request of the run.
        results_mb: Memory that making the results takes beside it.
        results_bytes: More of it for each request.
        resume_s: From the command to the first request of a small run.
        resumed_s: More of it for each stored outcome.
    """

    start_s: float
    request_s: float
    wrong_s: float
    page_s: float
    page_bytes: float
    request_bytes: float
    sending_mb: float
    sending_bytes: float
    results_mb: float
    results_bytes: float
    resume_s: float
    resumed_s: float

    def cost_s(self, n_held: float) -> float:
        """Processor time of one more request of a client whose store holds so many."""
        return self.request_s + self.wrong_s * wrong(n_held) + self.page_s * pages(n_held)


class Death(NamedTuple):
    """A server falls silent.

    Attributes:
        at_s: When.
        back_s: Until it is replaced.
    """

    at_s: float
    back_s: float


class Setting(msgspec.Struct, frozen=True):
    """A run to simulate.

    Attributes:
        n: Requests.
        n_servers: Servers.
        latency_s: Of a request.
        server_rate: Requests that a server answers a second, at most.
        deaths: Of servers.
        hand_over_every_s: How long a client's job lasts.
        hand_over_s: Time that a hand-over takes.
    """

    n: int
    n_servers: int = 16
    latency_s: float = 0.1
    server_rate: float = float("inf")
    deaths: tuple[Death, ...] = ()
    hand_over_every_s: float = float("inf")
    hand_over_s: float = 0.0


class Simulated(NamedTuple):
    """The time and the space that a run takes.

    Attributes:
        sending_s: Until the last answer.
        client_cpu_s: Of the client.
        n_bytes: Of the store.
        written_bytes: Given to disks in all, the changed pages of the index included.
        sending_mb: Of the client while it sends.
        results_mb: While results are made.
        resume_s: If the run is stopped shortly before its end.
        cost_ms: Of the last request, processor time.
        n_again: Requests that were asked again.
        n_hand_overs: Of the client.
    """

    sending_s: float
    client_cpu_s: float
    n_bytes: float
    written_bytes: float
    sending_mb: float
    results_mb: float
    resume_s: float
    cost_ms: float
    n_again: float
    n_hand_overs: int


class _Simulation:
    """The state of a simulated run, at `now` (seconds)."""

    def __init__(self, setting: Setting, constants: Constants) -> None:
        self.now = 0.0
        self.cpu_s = constants.start_s
        self.written_bytes = 0.0
        self.n_again = 0.0
        self.n_held = 0.0
        self.n_hand_overs = 0
        self._rate = 0.0
        self._stands_until = 0.0
        self._setting = setting
        self._constants = constants
        self._n_alive = setting.n_servers
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for death in setting.deaths:
            self._at(death.at_s, self._dies)
            self._at(death.at_s + death.back_s, self._is_back)
        if setting.hand_over_every_s < float("inf"):
            self._at(setting.hand_over_every_s, self._hand_on)

    def run(self) -> None:
        """Until all is answered."""
        n = self._setting.n
        while (left := n - self.n_held) > _NOTHING:
            self._set_rate()
            # What a request costs grows with the store: the rate holds for a block of items.
            block = min(left, BLOCK * PER_ITEM)
            ends = [self.now + block / self._rate] if self._rate > 0 else []
            waits = [self._stands_until] if self._stands_until > self.now else []
            events = [self._events[0][0]] if self._events else []
            then = min([*ends, *waits, *events])
            self._advance(min(block, self._rate * (then - self.now)))
            self.now = then
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()

    def _set_rate(self) -> None:
        setting = self._setting
        self._rate = min(
            1 / self._constants.cost_s(self.n_held),
            _IN_FLIGHT * self._n_alive / setting.latency_s,
            self._n_alive * setting.server_rate,
        )
        if self._stands_until > self.now:
            self._rate = 0.0

    def _advance(self, n: float) -> None:
        constants = self._constants
        self.cpu_s += n * constants.cost_s(self.n_held)
        written = constants.request_bytes + constants.page_bytes * pages(self.n_held)
        self.written_bytes += n * written
        self.n_held += n

    # -- events ------------------------------------------------------------------------------------

    def _at(self, at_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), what))

    def _dies(self) -> None:
        self._n_alive -= 1
        in_flight = self._rate * self._setting.latency_s
        self.n_again += min(_IN_FLIGHT, in_flight / (self._n_alive + 1))

    def _is_back(self) -> None:
        self._n_alive += 1

    def _hand_on(self) -> None:
        self._stands_until = self.now + self._setting.hand_over_s
        self.n_hand_overs += 1
        self._at(self.now + self._setting.hand_over_every_s, self._hand_on)


def simulate(setting: Setting, constants: Constants) -> Simulated:
    """Simulate a run."""
    found = _Simulation(setting, constants)
    found.run()
    n = setting.n
    return Simulated(
        found.now,
        found.cpu_s,
        n * constants.request_bytes,
        found.written_bytes,
        constants.sending_mb + n * constants.sending_bytes / 2**20,
        constants.sending_mb
        + constants.results_mb
        + n * (constants.sending_bytes + constants.results_bytes) / 2**20,
        constants.resume_s + n * constants.resumed_s,
        1e3 * constants.cost_s(found.n_held),
        found.n_again,
        found.n_hand_overs,
    )


def breaks(constants: Constants) -> list[tuple[float, str]]:
    """Numbers of requests from which on something is too much for the client, the first first."""

    def least(is_too_much: Callable[[float], bool]) -> float:
        return next((n for n in np.geomspace(1e5, 1e10, 1001) if is_too_much(n)), float("inf"))

    def results_mb(n: float) -> float:
        more = n * (constants.sending_bytes + constants.results_bytes) / 2**20
        return constants.sending_mb + constants.results_mb + more

    found = [
        (
            least(lambda n: constants.cost_s(n) > 1.25 * constants.request_s),
            "a request takes a quarter more processor time (filter and index of keys)",
        ),
        (
            least(lambda n: constants.resume_s + n * constants.resumed_s > 60),
            "to resume takes a minute",
        ),
        (least(lambda n: results_mb(n) > 8 << 10), "the results take 8 GiB of memory"),
        (
            least(lambda n: constants.page_bytes * pages(n) > 10 * constants.request_bytes),
            "the index of keys has ten times as many bytes written as the outcomes have",
        ),
        (
            least(lambda n: constants.sending_mb + n * constants.sending_bytes / 2**20 > 1024),
            "the client takes 1 GiB while it sends",
        ),
        (least(lambda n: n * constants.request_bytes > 100e9), "the store takes 100 GB"),
    ]
    return sorted(one for one in found if one[0] < float("inf"))
