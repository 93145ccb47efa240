"""Servers are probed before their first request, and held to what they were found to do.

The record of a server is kept in the run's store, by model and identity like its provenance. When
the run goes on with the same server, only the most valuable question is asked again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from orchestrator import contracts, plugins
from orchestrator.backend import LOCAL, Provenance
from orchestrator.contracts.method import Method
from orchestrator.errors import ServerChangedError, UsageError
from orchestrator.probing.abilities import IMPOSSIBLE, Example, Need, name_of, verdict
from orchestrator.probing.record import BAD, UNKNOWN, WARNING, ProbeRecord, compare, differences
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.asking import AT_ONCE, Http, Target
from orchestrator.runner.models.identity import LAUNCHED, capabilities_of, server_label
from orchestrator.runner.models.probe import Probe, probe_model
from orchestrator.store import Lender, Store, StoredServer
from orchestrator.store.entries import wall_ms
from orchestrator.units import Part

_log = logging.getLogger(__name__)

# Its numbers are invented, and what it is sent is counted by tests.
_NOT_PROBED: Final = frozenset({"fake"})

Needs = Mapping[str, Sequence[tuple[str, Need]]]
"""By model, what each method asks of it."""


class Probes:
    """Probes servers, and refuses those that can't do what a recipe asks.

    Where `accept_change`, the run goes on although a server does otherwise than before. The word of
    back-ends of the kinds `unprobed` is taken. Where not `refuses`, servers pass that can't do what
    is asked of them; `only_first` asks for what the run needs, and nothing else.

    Attributes:
        records: What was found, by model.
        postponed: A sentence on each model whose server answered nothing for the moment.
        others: Awaited with a model after the first contact with its server: a run that can't be
            answered is refused before any server is asked more.
    """

    def __init__(  # noqa: PLR0913 (most by keyword)
        self,
        store: Store,
        needs: Needs,
        *,
        accept_change: bool = False,
        enabled: bool = True,
        unprobed: frozenset[str] = _NOT_PROBED,
        refuses: bool = True,
        only_first: bool = False,
    ) -> None:
        self._store = store
        self._needs = needs
        self._accept_change = accept_change
        self._refuses = refuses
        self._only_first = only_first
        self.enabled = enabled
        self.others: Callable[[str], Awaitable[None]] = lambda _: asyncio.sleep(0)
        self._unprobed = unprobed
        self._locks: dict[str, asyncio.Lock] = {}
        self.records: dict[str, ProbeRecord] = {}
        self.postponed: dict[str, str] = {}

    async def check(self, spec: ModelSpec, label: str, found: Target) -> None:
        """Probe a server of a model that was connected; the store remembers it by its label.

        Raises:
            ServerChangedError: If it does otherwise than what answered this run before.
            UsageError: If it can't do what a method asks of it.
        """
        if not self.enabled or found.kind in self._unprobed or found.endpoint.base_url == LOCAL:
            return
        # Of several servers of one model the first is asked everything, the others little.
        async with self._locks.setdefault(spec.name, asyncio.Lock()):
            await self._check(spec, label, found)

    async def _check(self, spec: ModelSpec, label: str, found: Target) -> None:
        model, held = spec.name, probe_record(self._store, label)
        known = held is not None and _is_same(held, found.provenance)
        target = msgspec.structs.replace(
            found,
            at_once=min(spec.max_in_flight, AT_ONCE),
            examples=self._examples(model, held if known else None),
            wants=frozenset(need.ask for _, need in self._needs.get(model, ())),
            was_met=model in self.records,
        )
        async with Http(found.endpoint) as http:
            probe = Probe(target, http)
            met = await probe.first_contact()
            if probe.asks.is_closed and not target.was_met:
                raise UsageError(f"model {model!r}: {probe.asks.unsure}")
            if not probe.asks.unsure:
                self._refuse(model, found.kind, met)
            await self.others(model)
            # Of a back-end from outside nobody knows what routes its server has.
            only_first = self._only_first or not getattr(found.backend, "speaks_chat", False)
            if only_first or (probe.asks.unsure and self._refuses):
                self._postpone(model, probe.asks.unsure)
                return
            noise = not (known and held is not None and held.seen)
            record = await probe.rest(quick=known, noise=noise)
            if held is not None and differences(held, record):
                # Once more: one odd reply is no other server.
                record = await probe_model(target, quick=known, noise=noise)
        if held is None:
            whole = record
        else:
            whole = _joined(held, record) if known else record
            if self._compare(model, label, held, record):
                whole = _compared(held, whole, record)
            else:
                # Another server that was accepted: the model is held to it from now on.
                measured = whole.noise if record.noise is None else record.noise
                whole = msgspec.structs.replace(
                    whole, seen=record.seen, noise=measured, n_compared=0, largest=None
                )
        self.records[model] = whole
        # What is refused, and what was not answered for the moment, is asked again by the next
        # call: neither is kept.
        self._refuse(model, found.kind, whole)
        if probe.asks.unsure:
            self._postpone(model, probe.asks.unsure)
        else:
            self._store.set_meta(_key(label), msgspec.json.encode(whole).decode())
        # Nobody need know that a server scores no texts where no method has it score one.
        told = _TOLD if "score" in target.wants else _TOLD - {"score"}
        for finding in () if known else whole.findings:
            if finding.state in {BAD, WARNING} and finding.name in told:
                _log.warning("%s: %s", model, finding.said, extra={"model": model})

    def _refuse(self, model: str, kind: str, record: ProbeRecord) -> None:
        """Stop a run whose methods ask for what a server does not do."""
        faults = []
        can = capabilities_of(kind, None, allow_code=True)
        for method, need in self._needs.get(model, ()):
            judged = verdict(method, [need], record, can.features)
            if judged.verdict == IMPOSSIBLE:
                remedy = f" ({judged.remedy})" if judged.remedy else ""
                faults.append(f"{method}: {need.ask} by {model!r}: {judged.why}{remedy}")
        if faults and self._refuses:
            raise UsageError("\n".join(dict.fromkeys(faults)))

    def _postpone(self, model: str, why: str) -> None:
        said = f"{model}: what its server does is asked again by the next call: {why}"
        if why and self.postponed.get(model) != said:
            self.postponed[model] = said
            _log.warning("%s", said, extra={"model": model})

    def _examples(self, model: str, held: ProbeRecord | None) -> tuple[Example, ...]:
        asked = [one for _, need in self._needs.get(model, ()) for one in need.examples]
        findings = () if held is None else held.findings
        known = {finding.name for finding in findings if finding.state != UNKNOWN}
        new = {name: one for one in asked if (name := name_of(one)) not in known}
        return tuple(new.values())

    def _compare(self, model: str, label: str, held: ProbeRecord, record: ProbeRecord) -> bool:
        """Hold a server to what it was; False where it is another, which is accepted."""
        if not (changed := differences(held, record)):
            return True
        said = f"model {model!r}: its server behaves differently than before: {'; '.join(changed)}"
        if not self._accept_change:
            # What it answered before this was found is in the store, and stays so.
            at = datetime.fromtimestamp(wall_ms() / 1000, UTC)
            self._store.set_meta(_CHANGED + label, at.strftime("%Y-%m-%d %H:%M UTC"))
            raise ServerChangedError(
                f"{said}. Continue with --accept-server-change, or start a new run with --fresh"
            )
        _log.warning("%s", said, extra={"model": model})
        return False


# What changes numbers silently; the rest is said by `orchestrator servers probe`.
_TOLD: Final = frozenset({"generate", "score", "bos_twice", "prompt_tokens", "think_block", "date"})


def probe_record(store: Store, label: str) -> ProbeRecord | None:
    """Return the findings about a model's server; None if it was not probed."""
    text = store.meta.get(_key(label))
    return None if text is None else msgspec.json.decode(text, type=ProbeRecord)


def likeness_notes(store: Store, identities: Mapping[str, bytes]) -> list[str]:
    """State which change of a server that somebody else started was, or would have been, noticed.

    A server that was never compared with its first answers, as in a short run, has no sentence.
    """
    words, changed = [], []
    for model, identity in identities.items():
        label = server_label(model, identity)
        if (at := store.meta.get(key := _CHANGED + label)) is not None:
            changed += changes({key: at})
        server = store.server_of_model(label)
        if server is None or server.provenance.base_url == LAUNCHED:
            continue
        try:
            record = probe_record(store, label)
        except msgspec.MsgspecError:
            continue  # damaged, or of another version
        if record is None or not record.seen or not record.n_compared:
            continue
        n = record.n_compared
        found = f", {record.largest:.2g} at most" if record.largest is not None else ""
        words.append(f"{model} {record.limit:.2g} nats (compared {n} times{found})")
    if not words:
        return changed
    return [
        *changed,
        "servers were compared with their first answers when a run resumed, after lost "
        "connections, every 5 minutes and at the end; a larger change in the mean of their "
        f"log-probabilities would have been noticed: {', '.join(words)}",
    ]


def adopt_probe(store: Store, label: str, lender: Lender, server: StoredServer) -> None:
    """Take over what another run found its server to do, where this run has probed none.

    The server that answers now is then held to it.
    """
    text = lender.meta.get(_key(server.model))
    if text is None or store.meta.get(_key(label)) is not None:
        return
    # A record that can't be read, as of another version, is made anew.
    with contextlib.suppress(msgspec.MsgspecError):
        if _is_same(msgspec.json.decode(text, type=ProbeRecord), server.provenance):
            store.set_meta(_key(label), text)


def _key(label: str) -> str:
    return f"probe {label}"


_CHANGED: Final = "changed "


def changes(values: Mapping[str, str]) -> list[str]:
    """Say of which models the server was found to be another one, from values of a run's store."""
    return [
        f"{key.removeprefix(_CHANGED).rpartition(' ')[0]}: its server was found to be another one "
        f"at {at}; answers that it gave since the comparison before may be among those of this run"
        for key, at in values.items()
        if key.startswith(_CHANGED)
    ]


def _is_same(record: ProbeRecord, provenance: Provenance) -> bool:
    said = (provenance.backend, provenance.model, provenance.version, provenance.fingerprint)
    return (record.backend, record.model, record.version, record.fingerprint) == said


def _joined(held: ProbeRecord, record: ProbeRecord) -> ProbeRecord:
    """A record with the findings that were made anew; what was known stays known."""
    new = {finding.name: finding for finding in record.findings if finding.state != UNKNOWN}
    findings = tuple(new.pop(one.name, one) for one in held.findings)
    return msgspec.structs.replace(
        held,
        findings=(*findings, *new.values()),
        n_prompt=record.n_prompt or held.n_prompt,
        seen=held.seen or record.seen,
        noise=held.noise if held.seen else record.noise,
    )


def _compared(held: ProbeRecord, whole: ProbeRecord, now: ProbeRecord) -> ProbeRecord:
    """A record that remembers one more comparison, and is held to the first answers."""
    if (alike := compare(held.seen, now.seen)) is None:
        return whole
    return msgspec.structs.replace(
        whole,
        seen=held.seen,
        noise=held.noise,
        n_compared=held.n_compared + 1,
        largest=max(alike[0], held.largest or 0.0),
    )


def needs_of(parts: Iterable[Part]) -> dict[str, list[tuple[str, Need]]]:
    """Return the needs of a plan's methods, by model."""
    found: dict[str, list[tuple[str, Need]]] = {}
    for part in parts:
        for stage in part.stages():
            asked = (part.name, Need(stage.ask, stage.features, stage.top_logprobs, stage.examples))
            of_model = found.setdefault(stage.model, [])
            if asked not in of_model:
                of_model.append(asked)
    return found


# What the settings of some methods can't do without, to ask them for their stages.
_NOMINAL: Final = {
    "judges": ["this"], "baseline": "other", "prompts": "compact",
    "criteria": [{"name": "quality"}],
}  # fmt: skip


def nominal_needs() -> dict[str, list[Need]]:
    """Return the needs of each method of this project on a model that it judges or evaluates."""
    found: dict[str, list[Need]] = {}
    for kind in plugins.kinds(plugins.METHODS):
        method = contracts.load(Method, kind)
        fields = method.Config.model_fields
        given = {name: _NOMINAL[name] for name in fields if name in _NOMINAL}
        # Where nothing is the default, a method may still want something.
        wanted = [one for one in given if fields[one].is_required() or fields[one].default == ()]
        needed = {name: given[name] for name in wanted}
        stages = method(method.Config.model_validate(needed)).stages(("this", "other"))
        asked = [Need(stage.ask, stage.features, examples=stage.examples) for stage in stages]
        found[kind] = list(dict.fromkeys(asked))
    return found
