"""`orchestrator run --submit`: the client as a job of the cluster."""

import argparse
import sys
from pathlib import Path

from orchestrator.disk import paths
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.runner import api
from orchestrator.runner.commands.messages import Said
from orchestrator.runner.interface.checking import loaded_recipe, prepared_recipe
from orchestrator.runner.servers import slurm_chain
from orchestrator.runner.servers.slurm import check
from orchestrator.store import RunDirectory, newest


def submit(options: argparse.Namespace, said: Said) -> int:
    """Write the job of a run into its folder, and submit it.

    Raises:
        UsageError: If it can't be a job, or Slurm refuses it.
    """
    if options.on != "slurm":
        raise UsageError("--submit makes the client a job of Slurm: add --on slurm")
    for name in ("fresh", "keep_servers"):
        if getattr(options, name):
            option = name.replace("_", "-")
            raise UsageError(f"--{option} can't be used with --submit; name a folder by --run-dir")
    loaded, base, given = loaded_recipe(
        options.recipe, options.set, options.limit, allow_code=options.allow_code
    )
    check(prepared_recipe(loaded, base, given, allow_code=options.allow_code))
    run = newest(api.RUNS / loaded.name if options.run_dir is None else Path(options.run_dir))
    run = run.resolve()
    words = [word for word in options.words if word != "--submit"]
    command = [sys.executable, "-m", "orchestrator", *words]
    text = slurm_chain.script(loaded.cluster, run, Path.cwd(), command)
    file = slurm_chain.file_of(run)
    # Makes the run where there is none, and refuses one that another client writes.
    with RunDirectory.lock(run):
        file.write_text(text, encoding="utf-8")
    job = slurm_chain.submit(file)
    shown = paths.shown(run)
    said.note(
        f"submitted job {job} ({slurm_chain.name_of(run)}); its output: {shown}/slurm-{job}.log; "
        f"progress: orchestrator status {shown}"
    )
    return EXIT_COMPLETE
