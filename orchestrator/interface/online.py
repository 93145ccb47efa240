"""`check --online`: whether servers that run already answer what a recipe asks of them.

The first contact of a run, before the run: a few small requests to each server, at the same time.
"""

import asyncio
import tempfile
from pathlib import Path

from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.records import Failure
from orchestrator.runner.event_loop import at_once, event_loop
from orchestrator.runner.models.records import Probes, needs_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.connections import is_reached
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.store import Store


def look(prepared: Prepared) -> tuple[str, ...]:
    """Ask each server that somebody else has started for what the run needs of it.

    Returns a sentence on each model whose server was not asked, or can't tell for the moment.

    Raises:
        UsageError: With all servers that are out of reach, refuse the key, lack the model or can't
            do what a method asks.
    """
    specs = [prepared.models[name] for name in prepared.identities]
    reached = [spec for spec in specs if is_reached(spec)]
    if not reached:
        return ()
    with event_loop() as (to_end, _):
        said, faults = to_end(_all(prepared, reached))
    if faults:
        raise UsageError("\n".join(faults))
    return tuple(said)


async def _all(prepared: Prepared, specs: list[ModelSpec]) -> tuple[list[str], list[str]]:
    with tempfile.TemporaryDirectory(prefix="orchestrator-check-") as folder:
        logs = Path(folder)
        with Store.open(logs / STORE_NAME) as store:
            ends = await at_once(*(_one(prepared, spec, store, logs) for spec in specs))
    return [note for note, _ in ends if note], [fault for _, fault in ends if fault]


async def _one(prepared: Prepared, spec: ModelSpec, store: Store, logs: Path) -> tuple[str, str]:
    """A note and a fault of one model; empty for none."""
    needs = {spec.name: needs_of(prepared.plan.parts).get(spec.name, [])}
    probes = Probes(store, needs, unprobed=frozenset(), only_first=True)
    fleet = Fleet(
        [spec],
        prepared.plan.identities,
        lambda name: logs / f"{name}.log",
        store,
        allow_code=prepared.allow_code,
        probes=probes,
        waits_for_all=True,
    )
    try:
        found = await fleet.connect(spec.name)
    except OrchestratorError as error:
        return "", str(error)
    finally:
        await asyncio.shield(fleet.stop())
    if isinstance(found, Failure):
        where = spec.base_url or " ".join(spec.base_urls)
        return "", f"model {spec.name!r} at {where}: {found.message}"
    await found.close()
    return probes.postponed.get(spec.name, ""), ""
