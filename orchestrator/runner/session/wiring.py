"""Parts of a session, put together by `orchestrator.runner.session.execute`."""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.runner.planning.budget import Budget
from orchestrator.runner.planning.reuse import Copies
from orchestrator.runner.servers.fleet import Hold
from orchestrator.runner.servers.waves import Loss, Waves
from orchestrator.runner.session.adaptive import KeptLimit
from orchestrator.scheduler.blocks import Blocks
from orchestrator.scheduler.core import Core
from orchestrator.scheduler.limits import Controller
from orchestrator.scheduler.loop import Connect
from orchestrator.statistics.trust import DEFAULTS, Thresholds
from orchestrator.store import Store
from orchestrator.units import Plan


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a session.

    Attributes:
        plan: The units.
        plan_id: The plan's number in the store.
        done: One byte a position, 1 where an earlier call finished it.
        first: Items whose units are begun first.
        store: Open for writing.
        core: Queues and limits.
        budget: What may be spent.
        connect: Gives back-ends.
        doubt: Told of a model whose connection broke, since its server may have been replaced; may
            hold the model (`Scheduler.hold`) until that is known.
        server_of: Number in the store of the server that a model is connected to.
        systems: System prompts by model.
        per_minute: Request rates by model.
        max_open: Units open at a time.
        max_bytes: Memory of open units above which no more are opened.
        limit: Requests that a model's servers may have at a time just now, where the window grows
            with them.
        run_dir: For messages.
        waves: Where not all servers run at the same time, or may not after the loss of a node.
        rest: Ends the servers of models, which are started again when they are asked.
        move: Has servers start at their new places when a node is lost.
        admit: Lets servers start that waited for this wave.
        n_servers: Of each model.
        controllers: Of the models whose limit is found while the run goes on.
        labels: What the store remembers the servers of each model by.
        kept_limits: What earlier calls found.
        copies: What is copied from other runs; None for nothing.
        blocks: Which units are needed, where asking may stop early; `done` is theirs.
        thresholds: Of the rule on judges, which displays show.
        confidence_level: Of the rule on judges.
    """

    plan: Plan
    plan_id: int
    done: bytearray
    store: Store
    core: Core
    budget: Budget
    connect: Connect
    server_of: Mapping[str, int]
    systems: Mapping[str, str]
    per_minute: dict[str, float]
    max_open: int
    run_dir: str
    max_bytes: float = math.inf
    limit: Callable[[str], int] | None = None
    waves: Waves | None = None
    rest: Callable[[Collection[str]], Awaitable[None]] | None = None
    move: Callable[[Loss], None] | None = None
    admit: Callable[[Collection[str]], None] | None = None
    n_servers: Mapping[str, int] = {}
    controllers: Mapping[str, Controller] = {}
    labels: Mapping[str, str] = {}
    doubt: Callable[[str, Hold], None] | None = None
    kept_limits: Mapping[str, KeptLimit] = {}
    copies: Copies | None = None
    blocks: Blocks | None = None
    first: Sequence[int] = ()
    thresholds: Thresholds = DEFAULTS
    confidence_level: float = 0.95

    @property
    def not_needed(self) -> NDArray[np.int64]:
        """By unit of an item, how many are not asked because they would decide nothing."""
        if self.blocks is None:
            return np.zeros(self.plan.n_per_item, dtype=np.int64)
        return self.blocks.not_needed
