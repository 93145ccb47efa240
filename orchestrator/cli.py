"""The commands. No logic here: each calls one function and turns errors into exit codes."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import polars as pl
from rich.console import RenderableType
from rich.text import Text

from orchestrator import __version__, plugins
from orchestrator.datasets import KINDS as DATASET_KINDS
from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_INTERRUPTED,
    EXIT_PARTIAL,
    EXIT_USAGE,
    OrchestratorError,
    UsageError,
)
from orchestrator.recipe.load import available, find
from orchestrator.recipe.load import load as load_recipe
from orchestrator.report import tables
from orchestrator.report.markdown import ranking_markdown
from orchestrator.report.page import print_to
from orchestrator.report.structured import ranking_json
from orchestrator.runner import api

Handler = Callable[[argparse.Namespace], int]


def entry() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    handler: Handler = options.handler
    try:
        return handler(options)
    except OrchestratorError as error:
        print_to(sys.stderr, tables.faults(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted; go on with the same command")
        return EXIT_INTERRUPTED


def _complain(message: str) -> None:
    print_to(sys.stderr, Text(f"orchestrator: {message}"))


def _show(*renderables: RenderableType) -> None:
    for renderable in renderables:
        print_to(sys.stdout, renderable)


# -- commands --------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    result = api.run(
        options.recipe,
        run_dir=options.run_dir,
        overrides=options.set,
        limit=options.limit,
        fresh=options.fresh,
        display=options.display,
        accept_server_change=options.accept_server_change,
        allow_code=options.allow_code,
    )
    ended = result.ended
    _show_result(result, options.format)
    if ended is not None and ended.interrupted:
        _complain(
            f"interrupted; all answers are kept in {result.path}; go on with the same command"
        )
        return EXIT_INTERRUPTED
    return _exit_code(result)


def _exit_code(result: api.Result) -> int:
    """0 where every unit of the plan has a good row."""
    if result.ended is not None and result.ended.stopping:
        _complain(f"stopped: {result.ended.stopping}; raise it and go on with the same command")
        return EXIT_PARTIAL
    failed = sum(int((frame["status"] != "ok").sum()) for frame in result.frames.values())
    if failed:
        _complain(f"{failed:,} units failed; see the table of failures, or {result.path}/results")
        return EXIT_PARTIAL
    return EXIT_COMPLETE


def _show_result(result: api.Result, form: str) -> None:
    if result.ended is not None and result.ended.progress is not None:
        # To stderr, so that what is redirected holds the result alone.
        print_to(sys.stderr, tables.run_summary(result.ended.progress, result.ended.n_left))
    if form == "json":
        documents = [ranking_json(ranking, result.exact_match) for ranking in result.rankings]
        sys.stdout.write(json.dumps(documents, indent=2, allow_nan=False) + "\n")
        return
    if form == "markdown":
        texts = [ranking_markdown(ranking, result.exact_match) for ranking in result.rankings]
        sys.stdout.write("\n\n".join(texts) + "\n")
        return
    for ranking in result.rankings:
        _show(tables.ranking(ranking, result.exact_match))
    if not result.rankings and result.exact_match:
        _show(tables.answers(result.exact_match))


def _plan(options: argparse.Namespace) -> int:
    counted = api.plan(
        options.recipe,
        run_dir=options.run_dir,
        overrides=options.set,
        limit=options.limit,
        allow_code=options.allow_code,
    )
    if options.json:
        sys.stdout.write(msgspec.json.encode(counted).decode() + "\n")
    else:
        _show(tables.plan_table(counted))
    return EXIT_COMPLETE


def _check(options: argparse.Namespace) -> int:
    worst = EXIT_COMPLETE
    for name in options.recipes:
        try:
            load_recipe(find(name), overrides=options.set, allow_code=options.allow_code)
        except UsageError as error:
            sys.stderr.write(f"{error}\n")
            worst = EXIT_USAGE
        else:
            sys.stdout.write(f"{name}: no faults\n")
    return worst


def _report(options: argparse.Namespace) -> int:
    _show_result(api.load(options.run), options.format)
    return EXIT_COMPLETE


def _export(options: argparse.Namespace) -> int:
    result = api.load(options.run)
    target = Path(options.to)
    target.mkdir(parents=True, exist_ok=True)
    for name, frame in result.frames.items():
        path = target / f"{name}.{options.format}"
        match options.format:
            case "parquet":
                frame.write_parquet(path)
            case "jsonl":
                frame.write_ndjson(path)
            case _:
                _flat(frame).write_csv(path)
        sys.stdout.write(f"{path}: {frame.height:,} rows\n")
    return EXIT_COMPLETE


def _status(options: argparse.Namespace) -> int:
    status = api.status(options.run)
    if options.json:
        sys.stdout.write(json.dumps(status) + "\n")
    else:
        _show(tables.status(status))
    return EXIT_COMPLETE


def _runs(options: argparse.Namespace) -> int:
    _show(tables.runs(api.list_runs(Path(options.folder))))
    return EXIT_COMPLETE


def _serve(options: argparse.Namespace) -> int:
    kind = "fake" if options.fake else "embedded"
    module = plugins.load(plugins.LAUNCH, kind)
    command: list[str] = module.serve_command(
        options.model, options.host, options.port, options.rest
    )
    os.execv(command[0], command)  # noqa: S606 (the server takes this process's place)


def _kinds(options: argparse.Namespace) -> int:
    family = options.family
    if family == "recipes":
        rows = [(path.stem, _first_line(path)) for path in available()]
    elif family == "datasets":
        rows = list(DATASET_KINDS.items())
    else:
        package = plugins.METHODS if family == "methods" else plugins.BACKENDS
        rows = [(kind, _doc(package, kind)) for kind in plugins.kinds(package)]
    _show(tables.listing(rows))
    return EXIT_COMPLETE


def _doc(package: str, kind: str) -> str:
    return (plugins.load(package, kind).__doc__ or "").strip().partition("\n")[0]


def _first_line(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("description:"):
            return line.removeprefix("description:").strip()
    return ""


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """CSV has no lists: they become JSON texts."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(
        pl.Series(name, [json.dumps(value) for value in frame[name].to_list()]) for name in lists
    )


# -- arguments -------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orchestrator", description=api.__doc__)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    run = _command(commands, "run", _run, "run a recipe, or go on where it stopped")
    _recipe_options(run)
    run.add_argument("--fresh", action="store_true", help="begin anew in runs/NAME.2, .3, …")
    run.add_argument("--display", choices=["live", "plain", "json", "none"])
    run.add_argument("--format", choices=["table", "markdown", "json"], default="table")
    run.add_argument(
        "--accept-server-change", action="store_true", help="go on although the server is another"
    )
    plan = _command(commands, "plan", _plan, "count what would be sent; sends nothing")
    _recipe_options(plan)
    plan.add_argument("--json", action="store_true")
    check = _command(commands, "check", _check, "find all faults of recipes, with file and line")
    check.add_argument("recipes", nargs="+", metavar="RECIPE")
    _override_options(check)
    report = _command(commands, "report", _report, "show what a run found")
    report.add_argument("run", metavar="RUN")
    report.add_argument("--format", choices=["table", "markdown", "json"], default="table")
    export = _command(commands, "export", _export, "write a run's frames to files")
    export.add_argument("run", metavar="RUN")
    export.add_argument("--to", required=True, metavar="DIR")
    export.add_argument("--format", choices=["parquet", "csv", "jsonl"], default="parquet")
    status = _command(commands, "status", _status, "look at a running or ended run")
    status.add_argument("run", metavar="RUN")
    status.add_argument("--json", action="store_true")
    runs = _command(commands, "runs", _runs, "list the runs kept in a folder")
    runs.add_argument("folder", nargs="?", default=str(api.RUNS))
    _serve_options(_command(commands, "serve", _serve, "serve models on this machine"))
    for family in ("methods", "backends", "datasets", "recipes"):
        listing = _command(commands, family, _kinds, f"list the {family} there are")
        listing.set_defaults(family=family)
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    handler: Handler,
    text: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(handler=handler)
    return command


def _recipe_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="path, or name of a recipe in recipes/")
    command.add_argument("--run-dir", metavar="D", help="where to keep the run (runs/NAME)")
    command.add_argument("--limit", type=int, metavar="N", help="only the first N items")
    _override_options(command)


def _override_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="change a setting of the recipe"
    )
    command.add_argument(
        "--allow-code", action="store_true", help="import kinds that are dotted module paths"
    )


def _serve_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model",
        nargs="+",
        help="NAME=DIR, NAME=bundled:NAME, DIR, bundled:NAME; with --fake a name",
    )
    command.add_argument("--fake", action="store_true", help="no model: deterministic replies")
    command.add_argument("--host", default="127.0.0.1", help="embedded server only")
    command.add_argument("--port", type=int, default=8000)
    command.add_argument("--threads", type=int, help="CPU threads of the embedded server")
    command.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    command.add_argument("--dtype", default="float32")
    command.add_argument("--rules", help="of the fake server: JSON, or a file with it")
