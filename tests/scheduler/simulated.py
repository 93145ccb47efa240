"""A server in virtual time: requests share what it computes, and what it can compute changes."""

import heapq
from collections.abc import Callable

import msgspec
import numpy as np

from orchestrator.scheduler.limits import Change, Controller, Seen


class Machine(msgspec.Struct, frozen=True):
    """Capacity of a server.

    Attributes:
        slots: Requests that it computes at a time; others wait in its queue.
        rate: Requests a second that it ends, by how many it computes.
        thrash: How much slower it gets by what waits, as a share of what it computes.
    """

    slots: int
    rate: Callable[[float], float]
    thrash: float = 0.0

    def speed(self, in_flight: int) -> float:
        """Requests a second with so many in flight."""
        running = min(in_flight, self.slots)
        waiting = in_flight - running
        return self.rate(running) / (1 + self.thrash * waiting / max(running, 1))

    def best(self, most: int = 512) -> float:
        """Of the best fixed limit."""
        return max(self.speed(n) for n in range(1, most + 1))


class Run(msgspec.Struct):
    """Result of a run: answers by time, and changes of the limit."""

    ended: list[float] = []
    changes: list[Change] = []

    def rate(self, start: float, end: float) -> float:
        """Answers a second between two times."""
        return sum(start <= at < end for at in self.ended) / (end - start)


def slots(n: int, each_s: float = 1.0, thrash: float = 0.0) -> Machine:
    """A server of so many places, each as fast as if it were alone."""
    return Machine(n, lambda running: running / each_s, thrash)


def batching(most: float, half: float) -> Machine:
    """A server without places, whose throughput grows ever more slowly."""
    return Machine(10**6, lambda running: most * running / (running + half))


def simulate(
    controller: Controller,
    machine_at: Callable[[float], Machine],
    seconds: float,
    *,
    publishes: bool,
    seed: int = 0,
    spread: float = 1.0,
    refuses_above: int | None = None,
    demand_at: Callable[[float], int] = lambda _: 10**9,
    prompts_each: int = 1,
) -> Run:
    """Send all that the controller allows, for so long.

    Args:
        controller: Told what is seen every so often.
        machine_at: The server at a time.
        seconds: How long.
        publishes: Whether the server says how many wait.
        seed: Of the sizes of requests.
        spread: Their standard deviation over their mean.
        refuses_above: With more in flight it answers 429.
        demand_at: Requests there are to send at a time, those in flight included.
        prompts_each: Of a request; the server counts these.
    """
    rng = np.random.default_rng(seed)
    shape = 1 / spread**2 if spread else 0.0
    run, now, done_each, serial = Run(), 0.0, 0.0, 0
    running: list[tuple[float, int]] = []  # (what each must have got, number)
    waiting: list[float] = []
    look_at, n_refused = 0.5, 0
    while now < seconds:
        machine, n = machine_at(now), len(running) + len(waiting)
        while n < min(controller.limit, demand_at(now)):
            if refuses_above is not None and n >= refuses_above:
                n_refused += 1
                break
            waiting.append(float(rng.gamma(shape, 1 / shape)) if shape else 1.0)
            n += 1
        while waiting and len(running) < machine.slots:
            serial += 1
            heapq.heappush(running, (done_each + waiting.pop(0), serial))
        each = machine.speed(n) / len(running) if running else 0.0
        left = (running[0][0] - done_each) / each if running else np.inf
        step = min(left, look_at - now)
        now, done_each = now + step, done_each + each * step
        if now >= look_at:
            counts = (prompts_each * len(waiting), prompts_each * len(running))
            queue = counts if publishes else (None, None)
            queued = max(0, min(1000, demand_at(now) - n))
            change = controller.look(now, _seen(run, (n, queued), n_refused, queue))
            if change is not None:
                run.changes.append(change)
            look_at = now + controller.wait_s(now)
        elif running:
            heapq.heappop(running)
            run.ended.append(now)
    return run


def _seen(
    run: Run, at_client: tuple[int, int], n_refused: int, at_server: tuple[int | None, int | None]
) -> Seen:
    return Seen(
        in_flight=at_client[0],
        queued=at_client[1],
        n_ended=len(run.ended),
        work=float(len(run.ended)),
        n_overloads=n_refused,
        waiting=at_server[0],
        running=at_server[1],
    )
