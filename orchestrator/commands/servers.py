"""`orchestrator servers` and its actions."""

import argparse
import asyncio
import math
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from orchestrator import contracts, plugins
from orchestrator.backend import (
    LOCAL,
    BackendKind,
    Endpoint,
    answered,
    base_url_fault,
    server_address,
)
from orchestrator.commands.messages import Said
from orchestrator.commands.plan import PROGRAM, one_job, send
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import EXIT_COMPLETE, LaunchError, UsageError
from orchestrator.interface.checking import directory_of, prepared_from
from orchestrator.probing.abilities import Verdict, name_of, verdict
from orchestrator.probing.record import ProbeRecord
from orchestrator.probing.replies import PATHS, context_length, identify, model_names
from orchestrator.records import Failure
from orchestrator.report import calls
from orchestrator.report.display import make_display
from orchestrator.report.page import print_to
from orchestrator.report.text import confirm, is_quiet, safe_line, write_to
from orchestrator.runner.event_loop import DRAINS, event_loop, unwrapped
from orchestrator.runner.logs import logged
from orchestrator.runner.models.asking import Http, Target
from orchestrator.runner.models.identity import capabilities_of
from orchestrator.runner.models.probe import probe_model
from orchestrator.runner.models.records import Probes, needs_of, nominal_needs
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers import slurm_chain
from orchestrator.runner.servers.connections import key_in
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.launched import Launched
from orchestrator.runner.servers.registry import Kept, ServerRegistry
from orchestrator.runner.servers.replicas import Listener
from orchestrator.runner.servers.slurm import On, answer, carriers, places_on
from orchestrator.serving import LaunchKind, ServeOptions
from orchestrator.store import RunDirectory, Store

_MOST_MODELS: Final = 8
# Between two looks at a server that is kept on a cluster.
_LOOK_S: Final = 5.0


class Probed(msgspec.Struct, frozen=True):
    """Findings about one model.

    Attributes:
        name: In the recipe, or as the server calls it.
        base_url: Of the server.
        kind: Of server that was recognised; its back-end is `record.backend`.
        record: What it does.
        verdicts: What each method can do with it.
        context: Tokens of its context; None where the server does not say.
    """

    name: str
    base_url: str
    kind: str
    record: ProbeRecord
    verdicts: tuple[Verdict, ...]
    context: int | None = None

    @property
    def title(self) -> str:
        """Model and server in a few words."""
        version = f" {self.record.version}" if self.record.version else ""
        room = f", {self.context:,} tokens" if self.context else ""
        return f"{self.name} on {self.base_url} ({self.kind}{version}{room})"


async def probe_url(
    url: str,
    models: Sequence[str] = (),
    *,
    backend: str = "",
    api_key_env: str = "",
    plain: bool = False,
) -> list[Probed]:
    """Probe a running server.

    Args:
        url: Its address.
        models: Names; all that the server lists where empty.
        backend: Kind of back-end; the recognised one where empty.
        api_key_env: Environment variable with the key; empty for none.
        plain: Whether the models are base models.
    """
    if fault := base_url_fault(url):
        raise UsageError(f"the URL {fault}")
    key = key_in(api_key_env) if api_key_env else ""
    at = Endpoint(base_url=server_address(url), model="", api_key=key, plain=plain)
    url = at.base_url
    async with Http(at) as http:
        replies = {path: await http.get(path) for path in PATHS}
        if not any(reply.status for reply in replies.values()):
            raise UsageError(f"{url} does not answer: {replies[PATHS[0]].words}")
        kind = identify(replies)
        listed = model_names(replies["/v1/models"])
        names = models or listed
        if not names:
            said = replies["/v1/models"]
            raise UsageError(
                f"{url} lists no models ({said.status} {said.words}); give one with --model, "
                "and the variable of its API key with --api-key-env"
            )
        if len(names) > _MOST_MODELS:
            shown = ", ".join(names[:_MOST_MODELS])
            raise UsageError(f"{url} has {len(names)} models ({shown}, …); choose with --model")
        backend = backend or (kind if kind in plugins.kinds(plugins.BACKENDS) else "openai")
        found, needs = [], nominal_needs()
        for name in names:
            record = await _probe_endpoint(msgspec.structs.replace(at, model=name), backend)
            features = capabilities_of(record.backend, None, allow_code=True).features
            verdicts = tuple(
                verdict(method, asked, record, features) for method, asked in needs.items()
            )
            context = context_length(replies, name)
            found.append(Probed(name, url, kind, record, verdicts, context))
        return found


async def _probe_endpoint(endpoint: Endpoint, kind: str) -> ProbeRecord:
    needs = nominal_needs().values()
    examples = {name_of(one): one for asked in needs for need in asked for one in need.examples}
    found = contracts.load(BackendKind, kind)
    backend = contracts.connected(found(found.Config()), endpoint)
    try:
        provenance = await answered(backend.provenance())
        if isinstance(provenance, Failure):
            raise UsageError(f"{endpoint.model!r} cannot be probed: {provenance.message}")
        return await probe_model(
            Target(
                kind=kind,
                endpoint=endpoint,
                backend=backend,
                provenance=provenance,
                examples=tuple(examples.values()),
            )
        )
    finally:
        await backend.close()


async def probe_recipe(prepared: Prepared) -> list[Probed]:
    """Probe the servers of a recipe, launching those that it launches, and end them again."""
    specs = [
        prepared.models[name]
        for name in prepared.identities
        if prepared.models[name].answers is None and prepared.models[name].base_url != LOCAL
    ]
    needs = needs_of(prepared.plan.parts)
    placed = places_on(prepared, "local")
    with tempfile.TemporaryDirectory(prefix="orchestrator-probe-") as folder:
        logs = Path(folder)
        with Store.open(logs / STORE_NAME) as store:
            probes = Probes(store, needs, unprobed=frozenset(), refuses=False)
            fleet = Fleet(
                specs,
                prepared.plan.identities,
                lambda name: logs / f"{name}.log",
                store,
                allow_code=prepared.allow_code,
                placed=[
                    msgspec.structs.replace(server, shares=server.shares[:1])
                    for server in placed.servers
                ],
                probes=probes,
                waits_for_all=True,
            )
            try:
                await _connect(fleet, [spec.name for spec in specs if spec.server is None])
                for wave in placed.waves:
                    models = [name for server in wave for name in server.models]
                    await _connect(fleet, models)
                    await fleet.rest(models)
            finally:
                await asyncio.shield(fleet.stop())
    found = []
    for spec in specs:
        record = probes.records[spec.name]
        asked = needs.get(spec.name, [])
        features = capabilities_of(record.backend, None, allow_code=True).features
        verdicts = tuple(
            verdict(method, [need for name, need in asked if name == method], record, features)
            for method in dict.fromkeys(name for name, _ in asked)
        )
        url = spec.base_url or "launched"
        found.append(Probed(spec.name, url, record.backend, record, verdicts))
    return found


async def _connect(fleet: Fleet, models: Iterable[str]) -> None:
    for name in models:
        backend = await fleet.connect(name)
        if isinstance(backend, Failure):
            raise UsageError(f"{name!r} cannot be probed: {backend.message}")
        await backend.close()


def probe(options: argparse.Namespace) -> int:
    """Find out what servers really do, and say which methods that allows."""
    if options.what.lower().startswith(("http://", "https://")):
        probing = probe_url(
            options.what,
            options.model,
            backend=options.backend or "",
            api_key_env=options.api_key_env or "",
            plain=options.plain,
        )
    else:
        allow_code = options.allow_code
        probing = probe_recipe(
            prepared_from(options.what, options.overrides, allow_code=allow_code)
        )
    with event_loop() as (to_end, _):
        found = to_end(probing)
    if options.json:
        write_to(sys.stdout, msgspec.json.encode(found).decode() + "\n")
    for one in () if options.json else found:
        shown = calls.probe(one.title, one.record.findings, one.verdicts)
        print_to(sys.stdout, shown)
    return EXIT_COMPLETE


def stop(options: argparse.Namespace) -> int:
    """End servers that runs have kept.

    Raises:
        UsageError: If a name is none of theirs, or it is not clear which are to be stopped.
    """
    shelf = ServerRegistry()
    found = {kept.name: kept for kept in shelf.all()}
    unknown = [name for name in options.name if name not in found]
    if unknown:
        raise UsageError(f"no kept server {', '.join(unknown)}; available: {', '.join(found)}")
    if not options.name and not options.all:
        raise UsageError("specify a server name or --all")
    chosen = {_who(found[name]) for name in options.name or found}
    for job in sorted(job for _, _, job in chosen if job.isdecimal()):
        if isinstance(said := answer("scancel", job), Failure):
            raise UsageError(f"scancel {job}: {said.message}")
    for name, kept in found.items():
        if _who(kept) in chosen:
            (shelf.forget if kept.job.isdecimal() else shelf.stop)(kept)
            confirm(f"{name} stopped")
    return EXIT_COMPLETE


def _who(kept: Kept) -> tuple[str, int, str]:
    """Return the job or the process that keeps a server, and may keep others that end with it."""
    return ("", 0, kept.job) if kept.job.isdecimal() else (kept.host, kept.watchdog, kept.job)


def start(options: argparse.Namespace) -> int:
    """Have a job keep the servers of a recipe; in a job and on Ray, keep them here."""
    if options.on == "local":
        raise UsageError("add --on slurm or --on ray; here, `run --keep-servers` keeps servers")
    job = os.environ.get("SLURM_JOB_ID") if options.on == "slurm" else "ray"
    own = [] if slurm_chain.HANDS_ON in os.environ else ["cluster.jobs=null"]
    overrides = [*options.overrides, *own]
    prepared = prepared_from(options.recipe, overrides, allow_code=options.allow_code)
    folder = directory_of(None, f"{prepared.recipe.run_name}.servers").resolve()
    if job is None:
        planned = one_job(prepared, folder, [*PROGRAM, *options.words], hands_on=False)
        send(planned, Said(), is_alone=True)
        confirm("runs with cluster.jobs=shared use these servers; `servers stop` ends them")
        return EXIT_COMPLETE
    shown = make_display("plain", sys.stderr)
    with RunDirectory.lock(folder) as run, logged(run.log_path, shown), event_loop() as (to_end, _):
        to_end(_keep(prepared, run, options.on, job))
    return EXIT_COMPLETE


async def _keep(prepared: Prepared, held: RunDirectory, on: On, job: str) -> None:
    """Keep the servers of a recipe running and known, until a signal comes."""
    placed = places_on(prepared, on)
    if len(placed.waves) != 1:
        raise UsageError("\n".join(["not all servers have room at a time:", *placed.words()]))
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, *DRAINS):
        loop.add_signal_handler(number, task.cancel if task else loop.stop)
    shelf = ServerRegistry()
    with (
        tempfile.TemporaryDirectory(prefix="orchestrator-keep-") as made,
        Store.open(Path(made) / STORE_NAME) as store,
    ):
        fleet = Fleet(
            [prepared.models[name] for name in prepared.identities],
            prepared.plan.identities,
            held.server_log,
            store,
            allow_code=prepared.allow_code,
            placed=placed.servers,
            carrier_of=carriers(prepared, on),
            shelf=shelf,
        )
        fleet.tell(_Elsewhere())
        try:
            async with asyncio.TaskGroup() as group:
                fleet.look_after(group)
                for server in fleet.launched:
                    group.create_task(_keep_one(server, job, task))
        except asyncio.CancelledError:
            confirm("the servers end")
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
        finally:
            own = [one for one in shelf.all() if one.job == job and one.watchdog == os.getpid()]
            for kept in own:
                shelf.forget(kept)
            await fleet.stop()
            for kept in own:
                shelf.stopped(kept)


class _Elsewhere(Listener):
    """Runs that are elsewhere: their servers may have requests at any time, and answer them."""

    def has_answered(self, model: str) -> bool:  # noqa: ARG002 (not known here)
        """See `Listener`."""
        return True

    def quiet_s(self, model: str) -> float:  # noqa: ARG002 (not known here)
        """See `Listener`."""
        return math.inf


async def _keep_one(server: Launched, job: str, all_of_them: "asyncio.Task[object] | None") -> None:
    """Keep one server known, and start it again when it has ended or is out of reach."""
    before = None
    while True:
        running = await server.running()
        if isinstance(running, Failure):
            raise LaunchError(running.message)
        is_to_stop = server.keeping is not None and server.keeping.share(running, server.name, job)
        if is_to_stop and all_of_them is not None:
            all_of_them.cancel()
        if running is not before:
            before = running
            confirm(f"{server.name} is ready at {running.base_url}")
        await asyncio.sleep(_LOOK_S)


def servers(options: argparse.Namespace) -> int:
    """List the servers that runs have kept."""
    found = ServerRegistry().all()
    if options.json:
        write_to(sys.stdout, msgspec.json.encode(list(found)).decode() + "\n")
        return EXIT_COMPLETE
    rows = [
        (kept.name, f"{kept.kind} at {kept.base_url}, {', '.join(kept.models)}; log {kept.log}")
        for kept in found
    ]
    if rows:
        print_to(sys.stdout, calls.listing(rows))
    else:
        write_to(sys.stdout, "no kept servers (`run --keep-servers`, `servers start` keep them)\n")
    return EXIT_COMPLETE


def serve(options: argparse.Namespace) -> int:
    """Serve models; the server takes this process's place."""
    check_free(options.host, options.port)
    kind = "fake" if options.fake else "embedded"
    launch = contracts.load(LaunchKind, kind)
    asked = ServeOptions(
        models=tuple(options.model),
        host=options.host,
        port=options.port,
        threads=options.threads,
        device=options.device,
        dtype=options.dtype,
    )
    try:
        command = list(launch(launch.Config()).serve_command(asked))
    except LaunchError as error:
        # Here the weights are the command's, so the command is wrong.
        raise UsageError(str(error)) from error
    if not is_quiet():
        names = safe_line(", ".join(options.model))
        write_to(sys.stderr, f"loading {names}; once it answers, its address follows\n")
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 (the server takes this process's place)


def check_free(host: str, port: int) -> None:
    """See that the address can be listened on, before models load."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; use --port 0 for a "
            "free one"
        ) from error
