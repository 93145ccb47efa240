"""`orchestrator plan`, and `orchestrator run --submit`: the client as a job of the cluster."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from orchestrator.disk import paths
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.report import tables
from orchestrator.report.live import progress
from orchestrator.report.page import print_to
from orchestrator.report.text import write_to
from orchestrator.runner import api
from orchestrator.runner.commands.messages import Said
from orchestrator.runner.interface.checking import directory_of, loaded_recipe, prepared_recipe
from orchestrator.runner.servers import slurm_chain
from orchestrator.runner.servers.slurm import check, room_of_job, see_that_all_fit
from orchestrator.store import RunDirectory, newest

# Options of `run` that a job can't have, and of `plan` that `run` does not have.
_REFUSED = ("fresh", "keep_servers", "json", "retry")
_OF_PLAN = ("--exact",)


class Job(NamedTuple):
    """A client as a job.

    Attributes:
        run: Run directory, absolute.
        script: Text of the batch script.
        overrides: Settings that the job adds to the recipe.
    """

    run: Path
    script: str
    overrides: tuple[str, ...]

    def submission(self) -> str:
        """Return the command that submits the script."""
        return f"sbatch --parsable {shlex.quote(str(slurm_chain.file_of(self.run)))}"


def submit(options: argparse.Namespace, said: Said) -> int:
    """Write the job of a run into its folder, and submit it."""
    planned = job_of(options)
    run = planned.run
    file = slurm_chain.file_of(run)
    # Makes the run where there is none, and refuses one that another client writes.
    with RunDirectory.lock(run):
        file.write_text(planned.script, encoding="utf-8")
    job = slurm_chain.submit(file)
    shown = paths.shown(run)
    said.note(
        f"submitted job {job} ({slurm_chain.name_of(run)}); its output: {shown}/slurm-{job}.log; "
        f"progress: orchestrator status {shown}"
    )
    return EXIT_COMPLETE


def job_of(options: argparse.Namespace) -> Job:
    """Return the job that `run --submit` sends; nothing is sent or written."""
    if options.on != "slurm":
        raise UsageError("--submit makes the client a job of Slurm: add --on slurm")
    for name in _REFUSED:
        if getattr(options, name, False):
            option = name.replace("_", "-")
            hint = "; name a folder by --run-dir" if name == "fresh" else ""
            raise UsageError(f"--{option} can't be used with --submit{hint}")
    loaded, base, given = loaded_recipe(
        options.recipe, options.overrides, options.limit, allow_code=options.allow_code
    )
    prepared = prepared_recipe(loaded, base, given, allow_code=options.allow_code)
    check(prepared)
    see_that_all_fit(prepared)
    run = newest(directory_of(options.run_dir, loaded.run_name))
    command = [sys.executable, "-m", "orchestrator", *_words(options.words)]
    run = run.resolve()
    cluster = loaded.settings.cluster
    room = room_of_job(prepared) if cluster.nodes else []
    script = slurm_chain.script(cluster, run, Path.cwd(), command, room)
    return Job(run, script, slurm_chain.overrides_of(cluster))


def _words(words: Sequence[str]) -> Iterator[str]:
    gone = ("--submit", *(_OF_PLAN if words[0] == "plan" else ()))
    yield "run"
    for word in words[1:]:
        # Options may be abbreviated; a job with `--submi` would submit itself for ever.
        if not (len(word) > len("--") and any(option.startswith(word) for option in gone)):
            yield word


def plan(options: argparse.Namespace) -> int:
    """Count what would be sent; send nothing."""
    job = job_of(options) if options.submit else None
    shown = progress("counting items", None) if options.exact else nullcontext(_unseen)
    with shown as advance:
        counted = api.plan(
            options.recipe,
            run_dir=options.run_dir,
            overrides=[*options.overrides, *([] if job is None else job.overrides)],
            limit=options.limit,
            on=options.on,
            allow_code=options.allow_code,
            exact=options.exact,
            advance=advance,
            retry=options.retry,
        )
    if options.json:
        write_to(sys.stdout, counted.to_json() + "\n")
    else:
        print_to(sys.stdout, tables.plan_table(counted))
    if job is not None:
        write_to(sys.stdout, f"\n{job.submission()}:\n\n{job.script}")
    return EXIT_COMPLETE


def _unseen(_n: int) -> None:
    """Show nothing: a short task."""
