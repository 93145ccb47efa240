"""Parts of sessions without servers, recipes and disks."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.session.adaptive import Adaptive
from orchestrator.runner.session.opening import Opened
from orchestrator.runner.session.session import Session
from orchestrator.statistics.trust import DEFAULTS


class Fleet:
    """Connects by a function; has no servers of its own."""

    copies = None
    server_ids: Mapping[str, int] = {}

    def __init__(self, connect):
        self.connect = connect

    def doubt(self, model, hold):
        pass

    async def compare_at_end(self):
        pass


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a session; `max_open` None has the window grow with the limits."""

    plan: Any
    store: Any
    core: Any
    budget: Any
    fleet: Any
    max_open: int | None = 200
    max_bytes: float = math.inf
    limits: Adaptive | None = None
    waves: Any = None
    per_minute: Mapping[str, float] = {}
    done: bytearray = msgspec.field(default_factory=bytearray)

    def __post_init__(self):
        self.done.extend(bytes(len(self.plan) - len(self.done)))

    def session(self):
        settings = SimpleNamespace(
            window=SimpleNamespace(units=self.max_open, megabytes=self.max_bytes / 1e6),
            statistics=SimpleNamespace(trust=DEFAULTS, confidence_level=0.95),
        )
        recipe = SimpleNamespace(settings=settings)
        models = {
            name: SimpleNamespace(
                entry=SimpleNamespace(system="", batch=None),
                name=name,
                limits=SimpleNamespace(requests_per_minute=rate),
            )
            for name, rate in self.per_minute.items()
        }
        prepared = Prepared(
            cast("Any", recipe),
            self.plan.items,
            cast("Any", models),
            {name: {} for name in models},
            self.plan,
            allow_code=False,
        )
        opened = Opened(1, self.done, [])
        limits = self.limits or Adaptive(self.store)
        parts = (self.store, self.core, self.budget, self.fleet, limits, self.waves)
        return Session(prepared, opened, *parts, run_dir=cast("Any", "here"))
