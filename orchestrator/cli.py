"""The commands. No logic here: each calls one function and turns errors into exit codes."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.text import Text

from orchestrator import __version__, plugins
from orchestrator.datasets import listing as dataset_listing
from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PARTIAL,
    EXIT_USAGE,
    LaunchError,
    OrchestratorError,
    UsageError,
)
from orchestrator.recipe.load import available, find
from orchestrator.recipe.load import load as load_recipe
from orchestrator.report import numbers, tables
from orchestrator.report.page import print_to, write_to
from orchestrator.report.results import Findings, as_tables, as_text, shortened
from orchestrator.report.text import safe_line
from orchestrator.runner import api, control_commands, report_commands, server_commands
from orchestrator.runner.logs import downloads_said
from orchestrator.runner.prepare import prepare
from orchestrator.view.options import view, view_options

Handler = Callable[[argparse.Namespace], int]

_MAX_PORT = 65_535
_FAMILIES = {
    "methods": plugins.METHODS,
    "analyses": plugins.ANALYSES,
    "backends": plugins.BACKENDS,
}


def entry() -> None:
    """The console script."""
    code = main(sys.argv[1:])
    # All is said and done: one Ctrl-C more would only change the exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.stdout.flush()
    except OSError:
        # The reader is gone (`| head`), or has no room: nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    handler: Handler = options.handler
    try:
        with downloads_said(_complain):
            return handler(options)
    except OrchestratorError as error:
        print_to(sys.stderr, tables.faults(error), wrap=sys.stderr.isatty())
        return error.exit_code
    except OSError as error:
        # What a file system or a full disk says is no fault of the program.
        where = "" if error.filename is None else f"{error.filename}: "
        _complain(f"{where}{error.strerror or error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _complain("interrupted; go on with the same command")
        return EXIT_INTERRUPTED


def _complain(message: str) -> None:
    print_to(sys.stderr, Text(safe_line(f"orchestrator: {message}")), wrap=sys.stderr.isatty())


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
        keep_servers=options.keep_servers,
        allow_code=options.allow_code,
    )
    ended = result.ended
    _show_result(result, options.format, whole=False)
    report_commands.write_files(result, options)
    if ended is not None and ended.interrupted:
        _complain(
            f"{ended.stopping}; all answers are kept in {result.path}; go on with the same command"
        )
        return EXIT_INTERRUPTED
    return _exit_code(result)


def _exit_code(result: api.Result) -> int:
    """0 where every unit of the plan has a good row."""
    if result.ended is not None and result.ended.stopping:
        _complain(f"stopped: {result.ended.stopping}; raise it and go on with the same command")
        return EXIT_PARTIAL
    failed = result.n_failed_rows
    if failed:
        where = f"see the table of failures, or {result.path}/results"
        _complain(f"{numbers.counted(failed, 'unit')} failed; {where}")
        return EXIT_PARTIAL
    return EXIT_COMPLETE


def _show_result(result: api.Result, form: str, *, whole: bool = True) -> None:
    if result.ended is not None and result.ended.progress is not None:
        # To stderr, so that what is redirected holds the result alone.
        print_to(sys.stderr, tables.run_summary(result.ended.progress, result.ended.n_left))
    found = Findings(result.rankings, result.exact_match, result.tables)
    if form == "table":
        shown, n_more = (found, 0) if whole else shortened(found)
        _show(*as_tables(shown))
        if n_more:
            _complain(f"{numbers.counted(n_more, 'more table')}: orchestrator report {result.path}")
    else:
        write_to(sys.stdout, as_text("json" if form == "json" else "markdown", found))


def _plan(options: argparse.Namespace) -> int:
    counted = api.plan(
        options.recipe,
        run_dir=options.run_dir,
        overrides=options.set,
        limit=options.limit,
        allow_code=options.allow_code,
    )
    if options.json:
        write_to(sys.stdout, msgspec.json.encode(counted).decode() + "\n")
    else:
        _show(tables.plan_table(counted))
    return EXIT_COMPLETE


def _check(options: argparse.Namespace) -> int:
    worst = EXIT_COMPLETE
    for name in options.recipes:
        try:
            _check_one(find(name), options)
        except UsageError as error:
            print_to(sys.stderr, tables.faults(error, summary=False), wrap=False)
            worst = EXIT_USAGE
        else:
            write_to(sys.stdout, f"{safe_line(name)}: no faults\n")
    return worst


def _check_one(path: Path, options: argparse.Namespace) -> None:
    recipe = load_recipe(path, overrides=options.set, allow_code=options.allow_code)
    try:
        prepare(recipe, path.parent, allow_code=options.allow_code)
    except LaunchError as error:
        # Weights that are on another machine are no fault of the recipe.
        _complain(f"{path.name}: not on this machine: {error}")


def _report(options: argparse.Namespace) -> int:
    result = api.load(report_commands.run_path(options.run))
    if result.n_left:
        _complain(
            f"this run is not finished: {result.n_left:,} units are left, of which nothing is said "
            f"here"
        )
    for note in result.notes:
        _complain(note)
    if not report_commands.write_files(result, options):
        _show_result(result, options.format)
    return EXIT_COMPLETE


def _status(options: argparse.Namespace) -> int:
    status = api.status(report_commands.run_path(options.run))
    if options.json:
        write_to(sys.stdout, json.dumps(status) + "\n")
    else:
        _show(tables.status(status))
    return EXIT_COMPLETE


def _runs(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    if not folder.is_dir() and folder != api.RUNS:
        raise UsageError(f"{folder}: there is no such folder")
    _show(tables.runs(api.list_runs(folder)))
    return EXIT_COMPLETE


def _serve(options: argparse.Namespace) -> int:
    kind = "fake" if options.fake else "embedded"
    module = plugins.load(plugins.LAUNCH, kind)
    try:
        command: list[str] = module.serve_command(options)
    except LaunchError as error:
        # Here the weights and rules are the command's, so the command is wrong.
        raise UsageError(str(error)) from error
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 (the server takes this process's place)


def _kinds(options: argparse.Namespace) -> int:
    family = options.family
    if family == "recipes":
        rows = [(path.stem, _first_line(path)) for path in available()]
    elif family == "datasets":
        rows = dataset_listing()
    else:
        package = _FAMILIES[family]
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


# -- arguments -------------------------------------------------------------------------------------


_ABOUT = """\
Evaluates language models with the models' own probabilities.

  orchestrator run RECIPE        runs it, or goes on where it stopped
  orchestrator report RUN        shows what a run found
"""
_STEERING = (
    (control_commands.pause, "have a running run send nothing more for now"),
    (control_commands.resume, "have a paused run go on"),
    (control_commands.limit, "change how many requests a model may have at a time"),
    (control_commands.stop, "stop a running run as Ctrl-C does"),
)
_EXITS = """\
exit codes: 0 complete; 1 the run failed; 2 the recipe or the command is wrong; 3 finished, but some
units failed or a budget was reached; 130 interrupted, go on with the same command"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="orchestrator",
        description=_ABOUT,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _run_options(_command(commands, "run", _run, "run a recipe, or go on where it stopped"))
    plan = _command(commands, "plan", _plan, "count what would be sent; sends nothing")
    _recipe_options(plan)
    plan.add_argument("--json", action="store_true", help="for programs")
    check = _command(commands, "check", _check, "find all faults of recipes, with file and line")
    check.add_argument("recipes", nargs="+", metavar="RECIPE", help="paths or names of recipes")
    _override_options(check)
    report = _command(commands, "report", _report, "show what a run found")
    _run_argument(report)
    _format_option(report)
    report_commands.charts_option(report)
    export = _command(commands, "export", report_commands.export, "write a run's frames to files")
    _run_argument(export)
    report_commands.export_options(export)
    status = _command(commands, "status", _status, "look at a running or ended run")
    _run_argument(status)
    status.add_argument("--json", action="store_true", help="for programs")
    for handler, text in _STEERING:
        steer = _command(commands, handler.__name__, handler, text)
        _run_argument(steer)
        if handler is control_commands.limit:
            control_commands.limit_options(steer)
    runs = _command(commands, "runs", _runs, "list the runs kept in a folder")
    runs.add_argument("folder", nargs="?", default=str(api.RUNS), help="runs/ where left out")
    view_options(_command(commands, "view", view, "look at runs in the browser"))
    _serve_options(_command(commands, "serve", _serve, "serve models on this machine"))
    probe = _command(commands, "probe", server_commands.probe, "find out what servers really do")
    server_commands.probe_options(probe)
    _override_options(probe)
    servers = _command(commands, "servers", server_commands.servers, "list or end kept servers")
    server_commands.servers_options(servers)
    for family in (*_FAMILIES, "datasets", "recipes"):
        listing = _command(commands, family, _kinds, f"list the {family} there are")
        listing.set_defaults(family=family)
    return parser


def _run_options(run: argparse.ArgumentParser) -> None:
    _recipe_options(run)
    run.add_argument(
        "--fresh", action="store_true", help="begin anew in runs/NAME.2, .3, and so on"
    )
    run.add_argument(
        "--display",
        choices=["live", "plain", "json", "none"],
        help="what stderr shows meanwhile; live at a terminal, else plain",
    )
    _format_option(run)
    run.add_argument(
        "--keep-servers", action="store_true", help="leave launched servers for the next run"
    )
    run.add_argument(
        "--accept-server-change", action="store_true", help="go on although the server is another"
    )


def _run_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="folder of a run, or its name in runs/")


def _format_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format",
        choices=["table", "markdown", "json"],
        default="table",
        help="how the results are written to stdout",
    )
    report_commands.html_option(command)


def _positive(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) <= _MAX_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be 0 (any free one) to {_MAX_PORT}, not {text!r}")


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
    command.add_argument("--limit", type=_positive, metavar="N", help="only the first N items")
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
    command.add_argument("--port", type=_port, default=8000, help="0 takes a free one")
    command.add_argument("--threads", type=_positive, help="CPU threads of the embedded server")
    command.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    command.add_argument("--dtype", default="float32", help="of the weights in memory")
    command.add_argument("--rules", help="of the fake server: JSON, or a file with it")
