"""`orchestrator plan`, and `orchestrator run` with `--submit` or `--shards`: clients as jobs."""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from orchestrator.commands.messages import Said
from orchestrator.disk import paths
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.interface.checking import directory_of, loaded_recipe, prepared_from
from orchestrator.interface.merging import merge_into
from orchestrator.placement import Size
from orchestrator.recipe.schema import shard_name
from orchestrator.report import calls
from orchestrator.report.live import progress
from orchestrator.report.page import print_to
from orchestrator.report.text import write_to
from orchestrator.runner.planning.budget import shares
from orchestrator.runner.planning.prepare import Prepared, describe_change, prepare
from orchestrator.runner.planning.revisions import revision_of
from orchestrator.runner.results.runs import unfinished
from orchestrator.runner.servers import slurm_chain
from orchestrator.runner.servers.ray import address_of, nodes_of, run_tasks
from orchestrator.runner.servers.slurm import MIB, are_shared, check, see_that_all_fit
from orchestrator.runner.servers.slurm_chain import room_of_all, room_of_job
from orchestrator.runner.session.opening import open_plan
from orchestrator.store import RunDirectory, Store, newest

# Options of `run` that a job can't have, and of `plan` that `run` does not have.
_REFUSED = ("fresh", "keep_servers", "json", "retry")
_OF_PLAN = ("--exact",)
PROGRAM = (sys.executable, "-m", "orchestrator")


class Job(NamedTuple):
    """A client as a job, or the shards of a run as the elements of an array and a job after them.

    Attributes:
        run: Run directory, absolute.
        scripts: Texts of batch scripts by their files, in the order in which they are submitted.
        overrides: Settings that the first adds to the recipe, beside those of a shard.
    """

    run: Path
    scripts: Mapping[Path, str]
    overrides: tuple[str, ...]

    def shown(self) -> str:
        """Return the commands that submit the scripts, and the scripts."""
        return "".join(
            f"\nsbatch --parsable {shlex.quote(str(file))}:\n\n{script}"
            for file, script in self.scripts.items()
        )


class Shards:
    """The shards of a recipe, as a command asks for them. Nothing is sent or written.

    Attributes:
        run: Run directory of all items, absolute.
        paths: Those of the shards.
        overrides: Settings that each adds to the recipe, but for its number.
        first: Those of the first shard.

    Raises:
        UsageError: If the recipe can't be run in shards, or not in so many.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        _refuse(options, "shards")
        self.n, self.n_at_once = options.shards
        self._options = options
        self._accepts_change = getattr(options, "accept_server_change", False)  # not of `plan`
        self._loaded = loaded_recipe(
            options.recipe, options.overrides, options.limit, allow_code=options.allow_code
        )
        loaded = self._loaded
        if loaded.settings.subset is not None:
            raise UsageError(
                f"subset: {loaded.settings.subset} can't be used with --shards, which has parts of "
                "its own; use `limit` for fewer items"
            )
        self.run = newest(directory_of(options.run_dir, loaded.run_name)).resolve()
        names = (shard_name(self.run.name, part, self.n) for part in range(1, self.n + 1))
        self.paths = [self.run.with_name(name) for name in names]
        # They are about the whole run.
        after = {"on_end": "null", "log_to": "[]", "gates": "[]"}
        none = [f"{name}={none}" for name, none in after.items() if getattr(loaded.settings, name)]
        self.overrides = [*options.overrides, *shares(loaded, self.n, self.n_at_once), *none]
        self.first = [*self.overrides, f"subset=1/{self.n}"]

    @cached_property
    def prepared(self) -> Prepared:
        """The first shard."""
        return _prepared(self._options, *self.first[len(self._options.overrides) :])

    @cached_property
    def left(self) -> dict[int, str]:
        """Shards that have not ended and why, by number."""
        return unfinished(self.prepared, self.paths)

    def said(self) -> str:
        """Return what `plan` says of the shards, which stand behind the requests of the first."""
        added = self.overrides[len(self._options.overrides) :]
        size = str(self.size()) if self._options.on == "ray" else ""
        return (
            f"These are the requests of shard 1 of {self.n}, of which {len(self.left)} have not "
            f"ended and {self.n_at_once} run at a time; to the recipe each adds: "
            f"{', '.join(added) or 'nothing'}{f'; each takes {size}' if size else ''}"
        )

    def size(self) -> Size:
        """Return what the task of a shard takes of its node: the servers run there too."""
        cluster = self.prepared.recipe.settings.cluster
        nodes = () if cluster.autoscaling else nodes_of(address_of(cluster))
        room = room_of_all(self.prepared, [node.size for node in nodes])
        return Size(max(1, room["cpus"]), room["gpus"], room["memory"] * MIB or None)

    def words(self, part: object) -> list[str]:
        """Return the words of the command that runs a shard, behind `orchestrator`."""
        options = self._options
        run = self.run.with_name(shard_name(self.run.name, part, self.n))
        return [
            *("run", options.recipe),
            *(f"--set={one}" for one in self.overrides),
            *(f"--shard={part}/{self.n}", f"--run-dir={run}", "--display=plain"),
            *([f"--limit={options.limit}"] if options.limit else []),
            *(["--allow-code"] if options.allow_code else []),
            *(["--accept-server-change"] if self._accepts_change else []),
        ]

    def job(self) -> Job:
        """Return the array of the shards that have not ended, and the job that comes after it."""
        check(self.prepared)
        see_that_all_fit(self.prepared)
        cluster = self.prepared.recipe.settings.cluster
        # The servers of each shard are steps of its job; the last job is small and asks little.
        n_nodes = 1 if are_shared(self.prepared) else cluster.nodes or 1
        large = cluster.model_copy(update={"nodes": n_nodes})
        others = {name: value for name, value in cluster.options.items() if "gpu" not in name}
        small = cluster.model_copy(update={"nodes": None, "options": others})
        array = f"{','.join(map(str, self.left or range(1, self.n + 1)))}%{self.n_at_once}"
        script = partial(slurm_chain.script, run=self.run, folder=Path.cwd())
        element = [*PROGRAM, *self.words(slurm_chain.SHARD), "--on=slurm"]
        first = script(large, command=element, room=room_of_job(self.prepared), array=array)
        last = script(small, command=_words(self._options.words))
        files = (slurm_chain.file_of(self.run, is_array=is_array) for is_array in (True, False))
        return Job(
            self.run, dict(zip(files, (first, last), strict=True)), slurm_chain.overrides_of(large)
        )

    def merged(self) -> tuple[Prepared, Path]:
        """Put the runs of the shards together; return all items, and the run that has them.

        Raises:
            UsageError: If one has not ended.
        """
        # Of all items, which the call goes on with: they are read once.
        whole = prepare(self._loaded, allow_code=self._options.allow_code)
        # As `begin` has just found them, if it looked and none was run since.
        left = vars(self).get("left")
        if left is None:
            left = unfinished(whole, self.paths)
        if left:
            said = [f"shard {part} of {self.n}: {why}" for part, why in left.items()]
            hint = (
                "run them with `--on slurm` or `--on ray` beside `--shards`, which runs no others, "
                f"or here by `--shard I/{self.n}`"
            )
            why = "nothing was put together, for not all shards have ended:"
            raise UsageError("\n".join([why, *said, hint]))
        with RunDirectory.lock(self.run) as held:
            before = revision_of(held, whole.recipe.name)
            # That of all items must have the recipe of the shards.
            if describe_change(before, whole.identities, whole.recipe):
                with Store.open(held.store_path, check_owned=held.check_owned) as store:
                    open_plan(whole, held, store)
            merge_into(held, self.paths, accept_change=self._accepts_change)
        return whole, self.run


def submit(options: argparse.Namespace, said: Said) -> int:
    """Write the jobs of a run into its folder, and submit them."""
    send(job_of(options), said, is_alone=bool(options.shards))
    return EXIT_COMPLETE


def send(planned: Job, said: Said, *, is_alone: bool) -> None:
    """Write jobs into their folder, and submit them; nothing if one that `is_alone` is there."""
    run, number = planned.run, ""
    # Makes the run where there is none, and refuses one that another client writes.
    with RunDirectory.lock(run):
        if is_alone and (there := slurm_chain.waiting(run)):
            said.note(f"nothing was submitted: the run has jobs ({'; '.join(there)})")
            return
        for file, script in planned.scripts.items():
            file.write_text(script, encoding="utf-8")
            after = [f"--dependency=afterany:{number},singleton"] if number else []
            try:
                number = slurm_chain.submit(file, *after)
            except UsageError as error:
                if not number:
                    raise
                raise UsageError(
                    f"{error}; the array, job {number}, is in the queue: run the command again at "
                    "its end"
                ) from error
    shown = paths.shown(run)
    said.note(
        f"submitted job {number} ({slurm_chain.name_of(run)}); its output: {shown}/slurm-"
        f"{number}.log; progress: orchestrator status {shown}"
    )


def begin(shards: Shards, options: argparse.Namespace, said: Said) -> bool:
    """Run the shards of a recipe that have not ended, on a cluster.

    Returns:
        True if jobs that were submitted do the rest, False if the caller puts the shards together.
    """
    if options.on == "local" or slurm_chain.HANDS_ON in os.environ:
        return False
    if not shards.left:
        return False
    if options.on == "slurm":
        submit(options, said)
        return True
    check(shards.prepared, "ray")
    shown = paths.shown(shards.run)
    said.note(f"{len(shards.left)} shards run on Ray; progress: orchestrator status {shown}")
    # No other call may begin them too.
    with RunDirectory.lock(shards.run):
        run_tasks(
            shards.prepared.recipe.settings.cluster,
            [shards.words(part) for part in shards.left],
            shards.size(),
            shards.n_at_once,
        )
    del shards.left
    return False


def job_of(options: argparse.Namespace) -> Job:
    """Return the jobs that `run --submit` or `--shards` sends; nothing is sent or written."""
    if options.shards:
        return Shards(options).job()
    if options.on != "slurm":
        raise UsageError("--submit makes the client a job of Slurm: add --on slurm")
    _refuse(options, "submit")
    prepared = _prepared(options)
    run = newest(directory_of(options.run_dir, prepared.recipe.run_name)).resolve()
    return one_job(prepared, run, _words(options.words))


def one_job(prepared: Prepared, run: Path, words: Sequence[str], *, hands_on: bool = True) -> Job:
    """Return the job that runs a command, with servers as its steps if it has nodes for them."""
    check(prepared)
    see_that_all_fit(prepared)
    cluster = prepared.recipe.settings.cluster
    if are_shared(prepared):
        cluster = cluster.model_copy(update={"nodes": None})
    room = room_of_job(prepared) if cluster.nodes else []
    script = slurm_chain.script(cluster, run, Path.cwd(), words, room, hands_on=hands_on)
    return Job(run, {slurm_chain.file_of(run): script}, slurm_chain.overrides_of(cluster))


def _refuse(options: argparse.Namespace, command: str) -> None:
    for name in (*_REFUSED, *(["submit"] if command == "shards" else [])):
        if getattr(options, name, False):
            option = name.replace("_", "-")
            hint = "; name a folder by --run-dir" if name == "fresh" else ""
            raise UsageError(f"--{option} can't be used with --{command}{hint}")


def _prepared(options: argparse.Namespace, *more: str) -> Prepared:
    return prepared_from(
        options.recipe, [*options.overrides, *more], options.limit, allow_code=options.allow_code
    )


def _words(words: Sequence[str]) -> list[str]:
    """Return the command of a job: the one that submits it, but for what does that."""
    gone = ("--submit", *(_OF_PLAN if words[0] == "plan" else ()))
    # Options may be abbreviated; a job with `--submi` would submit itself for ever.
    kept = [
        word
        for word in words[1:]
        if not (len(word) > len("--") and any(option.startswith(word) for option in gone))
    ]
    return [*PROGRAM, "run", *kept]


def plan(options: argparse.Namespace) -> int:
    """Count what would be sent; send nothing."""
    is_sent = options.submit or (options.shards and options.on == "slurm")
    job = job_of(options) if is_sent else None
    shards = Shards(options) if options.shards else None
    overrides = options.overrides if shards is None else shards.first
    shown = progress("counting items", None) if options.exact else nullcontext(lambda _: None)
    with shown as advance:
        # Its module shows everything else, too, and most calls here count nothing.
        counted = importlib.import_module("orchestrator.interface.api").plan(
            options.recipe,
            run_dir=options.run_dir if shards is None else shards.paths[0],
            overrides=[*overrides, *([] if job is None else job.overrides)],
            limit=options.limit,
            # Servers of a shard on Ray stand beside its client.
            on="local" if options.on == "ray" and shards else options.on,
            allow_code=options.allow_code,
            exact=options.exact,
            advance=advance,
            retry=options.retry,
        )
    if options.json:
        write_to(sys.stdout, counted.to_json() + "\n")
    else:
        print_to(sys.stdout, calls.plan(counted))
    if shards is not None:
        write_to(sys.stdout, shards.said() + "\n")
    if job is not None:
        write_to(sys.stdout, job.shown())
    return EXIT_COMPLETE
