"""The commands' arguments. Each calls one function; errors become exit codes."""

import argparse
import atexit
import functools
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.disk.paths import RUNS
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED, OrchestratorError
from orchestrator.runner.commands.options import (
    allow_code_option,
    allow_options,
    cancel_option,
    charts_option,
    cite_options,
    compare_options,
    count,
    export_options,
    flag,
    full_option,
    gate_options,
    gc_options,
    get_recipe_options,
    get_weights_options,
    html_option,
    init_options,
    json_option,
    labels_options,
    limit_options,
    list_options,
    merge_options,
    new_options,
    place_option,
    probe_options,
    quiet_option,
    rm_options,
    stop_options,
    submit_option,
    subset_option,
    untrusted_option,
    view_options,
)
from orchestrator.runner.commands.parser import (
    SHELLS,
    Completion,
    Parser,
    end_at_once,
    open_streams,
    said_by_system,
)

if TYPE_CHECKING:
    from orchestrator.runner.commands.messages import Said

Handler = Callable[[argparse.Namespace], int]

# polars' allocator keeps freed memory for ten seconds: tens of megabytes between the tables of a
# large run. Returning it at once costs more: the report of a million outcomes then spends 3 s in
# the kernel, 1 s with 20 ms. It reads this when polars is imported, which no command has done yet.
_ALLOCATOR = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:20,muzzy_decay_ms:0")
# Objects between searches for cycles; nearly all live on. The default of 700 takes 0.2 s more.
_COLLECT_EVERY = (20_000, 20, 20)
_MAX_PORT = 65_535


def entry() -> None:
    """The console script."""
    ended: list[int] = []
    atexit.register(end_at_once, ended)  # before all others, so it runs after them
    open_streams()
    os.environ.setdefault(*_ALLOCATOR)
    if "_ARGCOMPLETE" in os.environ:
        # The shell asks what may come next; this answers and ends the process.
        _module("runner.commands.parser").complete(_parser())
    gc.set_threshold(*_COLLECT_EVERY)
    code = main(sys.argv[1:])
    # All is said and done: one Ctrl-C more would only change the exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        # The reader is gone (`| head`), or has no room: nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ended.append(code)
    sys.exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    options.words = tuple(arguments)
    guard = _module("runner.commands.guard")
    try:
        if guard.is_wanted(options):
            return int(guard.call(arguments, options))
        with (
            _module("report.text").quiet(wanted=options.quiet),
            _module("runner.logs").downloads_said(lambda text: _said(options).note(text)),
        ):
            return _handler(options.handler)(options)
    except OrchestratorError as error:
        _said(options).faults(error)
        return error.exit_code
    except OSError as error:
        # What a file system or a full disk says is no fault of the program.
        _said(options).complain(said_by_system(error))
        return EXIT_FAILED
    except KeyboardInterrupt:
        _said(options).interrupted()
        return EXIT_INTERRUPTED
    except BaseException as error:
        if not _is_told(error, options, guarded=guard.is_guarded()):
            raise
        return EXIT_FAILED


def _is_told(error: BaseException, options: argparse.Namespace, *, guarded: bool) -> bool:
    """Tell the user of an error that is no fault of this program, and return whether it was."""
    if guarded and isinstance(error, Exception):
        # What another user made may break anything.
        said = f"cannot read this untrusted run: {type(error).__name__}: {error}"
        _said(options).complain(said)
        return True
    blamed: OrchestratorError | None = _module("plugins").blame(error)
    if blamed is not None:
        _said(options).faults(blamed)
    return blamed is not None


def _module(name: str) -> ModuleType:
    # What a command needs (polars, pydantic, rich) takes most of a second to import; --help, and a
    # command that is spelt wrongly, need none of it.
    return importlib.import_module(f"orchestrator.{name}")


def _handler(name: str) -> Handler:
    """The function that a command calls, by its `module:function` among the commands."""
    module, _, function = name.partition(":")
    handler: Handler = getattr(_module(f"runner.commands.{module}"), function)
    return handler


def _said(options: argparse.Namespace) -> "Said":
    is_json = getattr(options, "display", None) == "json"
    found: Said = _module("runner.commands.messages").Said(is_json)
    return found


# -- arguments -------------------------------------------------------------------------------------


_ABOUT = """\
Evaluate language models with the models' own probabilities.

  orchestrator run RECIPE        run a recipe, or resume its run
  orchestrator report RUN        show the results of a run
"""
# Help of --allow-code: for commands that launch servers, and for those that only read a recipe.
_LAUNCHED = "run code and programs that the recipe names"
_IMPORTED = "import code that the recipe names, without starting programs"
_UNUSED = "accepted for consistency; this command imports no code"
_EXITS = """\
exit codes: 0 complete; 1 the run failed; 2 invalid recipe or command; 3 finished, but some units
failed, a budget was reached, or with --strict a judge can't be trusted; 4 a requirement of `gate`,
or of the recipe's `gates`, fails; 5 none fails, but one is not known yet; 130 interrupted, resume
with the same command"""


def _run_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="folder of a run, or its name in runs/")


def _form_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format",
        choices=["table", "markdown", "json"],
        default="table",
        help="format of the results on stdout (default: table)",
    )


def _recipe_options(command: argparse.ArgumentParser, permitted: str = _IMPORTED) -> None:
    command.add_argument(
        "recipe", metavar="RECIPE", help="path of a recipe, or its name in recipes/"
    )
    command.add_argument(
        "--run-dir",
        metavar="D",
        help="folder of the run (default: runs/NAME; of a shard runs/NAME.shard-I-of-N)",
    )
    command.add_argument("--limit", type=count, metavar="N", help="use only the first N items")
    subset_option(command)
    command.add_argument(
        "--retry",
        default="",
        metavar="CAUSE",
        help="ask failed requests of this cause again, such as bad_request, or all",
    )
    _override_options(command, permitted)


def _override_options(command: argparse.ArgumentParser, permitted: str = _IMPORTED) -> None:
    command.add_argument(
        "--set",
        action="append",
        dest="overrides",
        default=[],
        metavar="A.B=C",
        help="override a setting of the recipe",
    )
    allow_code_option(command, permitted)


def _run_options(run: argparse.ArgumentParser) -> None:
    _recipe_options(run, _LAUNCHED)
    flag(run, "--fresh", "start a new run in runs/NAME.2, .3, and so on")
    run.add_argument(
        "--display",
        choices=["live", "plain", "json", "none"],
        help="progress on stderr (default: live at a terminal, else plain)",
    )
    _form_option(run)
    full_option(run)
    html_option(run)
    flag(run, "--strict", "exit with 3 if a judge can't be trusted, so that there is no ranking")
    place_option(run)
    submit_option(run)
    flag(run, "--keep-servers", "keep launched servers running for the next run")
    run.add_argument(
        "--on-end",
        metavar="COMMAND",
        help="run COMMAND when the call ends, with the result in its environment",
    )
    flag(run, "--accept-server-change", "continue even if the server has changed")


def _plan_options(plan: argparse.ArgumentParser) -> None:
    _recipe_options(plan)
    place_option(plan)
    submit_option(plan, "print the batch script that `run --submit` would send")
    json_option(plan)
    flag(plan, "--exact", "count every unit instead of estimating large plans")


def _check_options(check: argparse.ArgumentParser) -> None:
    check.add_argument("recipes", nargs="+", metavar="RECIPE", help="paths or names of recipes")
    flag(
        check,
        "--online",
        "ask servers that run already, by a few small requests, if they answer what is needed",
    )
    _override_options(check)


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) <= _MAX_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"expected a port from 0 (any free port) to {_MAX_PORT}, not {text!r}"
    )


def _serve_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model",
        nargs="+",
        help="[NAME=]DIR, [NAME=]FILE.gguf or [NAME=]bundled:NAME; a name with --fake",
    )
    flag(command, "--fake", "serve deterministic replies without a model")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on")
    command.add_argument(
        "--port", type=_port, default=8000, help="port to listen on; 0 picks a free port"
    )
    command.add_argument(
        "--threads", type=count, help="number of CPU threads of the embedded server"
    )
    command.add_argument("--device", default="cpu", help="device of the model: cpu, cuda or cuda:1")
    command.add_argument(
        "--dtype", default="float32", help="number format of the weights in memory"
    )


def _start_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="recipe whose servers are started")
    place_option(command)


def _runs_options(runs: argparse.ArgumentParser) -> None:
    untrusted_option(runs)
    runs.add_argument("folder", nargs="?", default=RUNS, help="folder of runs (default: runs/)")
    json_option(runs)


_no_code = functools.partial(allow_code_option, words=_UNUSED)
_code_run = functools.partial(_override_options, permitted=_LAUNCHED)

# Name, module, help and options of a command, whose function has its name unless the module names
# another one. A command without a module has actions.
_Command = tuple[str, str, str, *tuple[Callable[[argparse.ArgumentParser], None], ...]]
_READS = (_run_argument, allow_code_option, untrusted_option)
_COMMANDS: Mapping[str, Sequence[_Command]] = {
    "recipes": (
        ("init", "recipes", "write a first recipe for the servers that are running", init_options),
        ("check", "check", "check recipes and list every fault with file:line", _check_options),
        ("plan", "plan", "count the requests of a recipe without sending any", _plan_options),
        ("run", "run", "run a recipe, or resume its run", _run_options),
    ),
    "results": (
        ("report", "results", "show the results of a run",
         *_READS, _form_option, full_option, html_option, charts_option),
        ("view", "results", "browse runs in a web browser", view_options),
        ("compare", "results", "compare runs, models, judges or methods on common items",
         compare_options, _form_option),
        ("gate", "results", "hold a run against requirements, with verdicts for CI",
         _run_argument, gate_options, _form_option),
        ("export", "results", "write tables, frames and figures of a run to files",
         _run_argument, _no_code, untrusted_option, export_options),
        ("cite", "results", "print a methods paragraph and BibTeX of a run",
         *_READS, cite_options),
        ("labels", "results", "write a sheet for human labels of a run's answers",
         *_READS, labels_options),
    ),
    "runs under way": (
        ("status", "status", "show the state of a run",
         _run_argument, _no_code, untrusted_option, json_option),
        ("pause", "status", "pause a run: stop sending new requests", _run_argument),
        ("resume", "status", "resume a paused run", _run_argument),
        ("limit", "status", "change a model's limit of concurrent requests",
         _run_argument, limit_options),
        ("stop", "status", "stop a run, as Ctrl-C does", _run_argument, cancel_option),
    ),
    "runs, servers and plug-ins": (
        ("runs", "", "list, merge, repair, clean up or delete runs"),
        ("servers", "", "list, stop, serve or probe servers"),
        ("list", "listing:kinds", "list methods, datasets, weights and what else a recipe names",
         list_options),
        ("get", "", "install weights, or copy a recipe"),
        ("new", "recipes", "create a plug-in with a test and a recipe", new_options),
        ("allow", "check", "allow the recipes of a folder to run code", allow_options),
    ),
}  # fmt: skip
_ACTIONS: Mapping[str, Sequence[_Command]] = {
    "runs": (
        ("list", "status:runs", "list the runs in a folder (default)", _runs_options),
        ("merge", "stored", "put runs of one recipe together into one run", merge_options),
        ("repair", "stored", "recover what is readable in a damaged run", _run_argument),
        ("gc", "stored", "delete outcomes that the last recipe of a run does not need",
         gc_options),
        ("rm", "stored", "delete runs, after a question", rm_options),
    ),
    "servers": (
        ("list", "servers:servers", "list the servers left running (default)", json_option),
        ("start", "servers", "start servers on a cluster that any number of runs share",
         _start_options, _code_run),
        ("stop", "servers", "stop servers left running", stop_options),
        ("serve", "servers", "serve models on this machine", _serve_options),
        ("probe", "servers", "probe servers for the features they support",
         probe_options, _code_run),
    ),
    "get": (
        ("weights", "weights:get", "install weights, after showing size and licence",
         get_weights_options),
        ("recipe", "recipes:copy", "copy a recipe that comes with the project, to change it",
         get_recipe_options),
    ),
}  # fmt: skip


@functools.cache
def _parser() -> Parser:
    parser = Parser(
        prog="orchestrator",
        description=_ABOUT,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--completion",
        action=Completion,
        choices=SHELLS,
        metavar="SHELL",
        help="print what a shell (bash, zsh or fish) needs to complete commands and names",
    )
    _add(parser, "COMMAND", _COMMANDS)
    return parser


def _add(parser: Parser, metavar: str, titled: Mapping[str, Sequence[_Command]]) -> None:
    """Add commands, which the help shows under titles."""
    added = parser.add_subparsers(required=True, metavar=metavar)
    for title, commands in titled.items():
        shown = parser.add_argument_group(title)
        for name, module, text, *options in commands:
            command = added.add_parser(name, help=text, description=text)
            if module:
                command.set_defaults(handler=module if ":" in module else f"{module}:{name}")
                quiet_option(command)
            else:
                _add(command, "ACTION", {"actions": _ACTIONS[name]})
            for add_options in options:
                add_options(command)
            shown._group_actions.append(added._choices_actions[-1])  # noqa: SLF001 (no public way)
    parser._positionals._group_actions.clear()  # noqa: SLF001 (shown above instead)
    parser.usual = "list" if "list" in added.choices and metavar == "ACTION" else ""
