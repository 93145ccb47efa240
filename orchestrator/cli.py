"""The commands' arguments. Each calls one function; errors become exit codes."""

import argparse
import atexit
import errno
import functools
import gc
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from orchestrator import __version__
from orchestrator.commands.options import ACTIONS, COMMANDS, QUIET, Command
from orchestrator.commands.parser import (
    SHELLS,
    Completion,
    Parser,
    end_at_once,
    open_streams,
    words_of,
)
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, OrchestratorError

if TYPE_CHECKING:
    from orchestrator.commands.messages import Said

# polars' allocator keeps freed memory for ten seconds: tens of megabytes between the tables of a
# large run. Returning it at once costs more: the report of a million outcomes then spends 3 s in
# the kernel, 1 s with 20 ms. It reads this when polars is imported, which no command has done yet.
_ALLOCATOR = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:20,muzzy_decay_ms:0")
# Objects between searches for cycles; nearly all live on. The default of 700 takes 0.2 s more.
_COLLECT_EVERY = (20_000, 20, 20)


def entry() -> None:
    """The console script."""
    ended: list[int] = []
    atexit.register(end_at_once, ended)  # before all others, so it runs after them
    open_streams()
    os.environ.setdefault(*_ALLOCATOR)
    if "_ARGCOMPLETE" in os.environ:
        # The shell asks what may come next; this answers and ends the process.
        _module("commands.parser").complete(_parser())
    gc.set_threshold(*_COLLECT_EVERY)
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED  # before there was a command, or again while the first was told
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
    guard = _module("commands.guard")
    try:
        if guard.is_wanted(options):
            return int(guard.call(arguments, options))
        with (
            _module("report.text").quiet(wanted=options.quiet),
            _module("runner.logs").downloads_said(lambda text: _said(options).note(text)),
        ):
            command = pkgutil.resolve_name(f"orchestrator.commands.{options.handler}")
            return int(command(options))
    except OrchestratorError as error:
        _said(options).faults(error)
        return error.exit_code
    except OSError as error:
        # What a file system or a full disk says is no fault of the program.
        _said(options).complain(words_of(error))
        # A path that no file system takes is a slip in the command.
        return EXIT_USAGE if error.errno == errno.ENAMETOOLONG else EXIT_FAILED
    except MemoryError:
        _said(options).complain("out of memory: free some, or raise the limit; records are safe")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _said(options).interrupted()
        return EXIT_INTERRUPTED
    except BaseException as error:
        if guard.is_guarded() and isinstance(error, Exception):
            # What another user made may break anything.
            said = f"cannot read this untrusted run: {type(error).__name__}: {error}"
            _said(options).complain(said)
        elif (blamed := _module("plugins").blame(error)) is not None:
            _said(options).faults(blamed)
        else:
            raise
        return EXIT_FAILED


def _module(name: str) -> ModuleType:
    # What a command needs (polars, pydantic, rich) takes most of a second to import; --help, and a
    # command that is spelt wrongly, need none of it.
    return importlib.import_module(f"orchestrator.{name}")


def _said(options: argparse.Namespace) -> "Said":
    is_json = getattr(options, "display", None) == "json"
    found: Said = _module("commands.messages").Said(is_json)
    return found


_ABOUT: Final = """\
Evaluate language models with the models' own probabilities.

  orchestrator run RECIPE        run a recipe, or resume its run
  orchestrator report RUN        show the results of a run
"""
_EXITS: Final = """\
exit codes: 0 complete; 1 the run failed; 2 invalid recipe or command; 3 finished, but some units
failed, a budget was reached, or with --strict a judge can't be trusted; 4 a requirement of `gate`,
or of the recipe's `gates`, fails; 5 none fails, but one is not known yet; 130 interrupted, resume
with the same command"""


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
    _add(parser, "COMMAND", COMMANDS)
    return parser


def _add(parser: Parser, metavar: str, titled: Mapping[str, Sequence[Command]]) -> None:
    """Add commands, which the help shows under titles."""
    added = parser.add_subparsers(required=True, metavar=metavar)
    for title, commands in titled.items():
        shown = parser.add_argument_group(title)
        for named, text, *options in commands:
            name, _, module = named.partition(" ")
            command = added.add_parser(name, help=text, description=text)
            if module:
                command.set_defaults(handler=module if ":" in module else f"{module}:{name}")
            else:
                _add(command, "ACTION", {"actions": ACTIONS[name]})
            for names, settings in (*([QUIET] if module else []), *options):
                command.add_argument(*names.split(), **settings)
            shown._group_actions.append(added._choices_actions[-1])  # noqa: SLF001 (no public way)
    parser._positionals._group_actions.clear()  # noqa: SLF001 (shown above instead)
    parser.usual = "list" if "list" in added.choices and metavar == "ACTION" else ""
