"""The command line: parser, completion in the shell, begin and end of the process."""

import argparse
import contextlib
import errno
import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.disk.files import few_files
from orchestrator.disk.paths import RUNS, STORE_NAME
from orchestrator.runner.commands.options import LISTED

# Where commands of a plain name are.
_MOVED = {kind: f"list {kind}" for kind in LISTED} | {
    "merge": "runs merge", "repair": "runs repair", "gc": "runs gc", "serve": "servers serve",
    "probe": "servers probe", "recipes copy": "get recipe", "weights get": "get weights",
    "completion": "--completion",
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests commands, options and values.

    Arguments that a command does not know are errors of that command, so that its usage is printed
    and not the one of the whole program.
    """

    usual = ""
    """Action that is meant where none is named."""
    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # noqa: ANN401 (as argparse declares it)
        """Parse arguments; the second part of the result is always empty.

        Exits with 2 if there is an argument that the command does not know.
        """
        self._given = () if args is None else tuple(args)
        first = next(iter(self._given), "-")
        if self.usual and first not in _HELP and VARIABLE not in os.environ:
            named = {name for action in self._actions for name in action.choices or ()}
            # A folder may stand in place of the action.
            if first.startswith("-") or (first not in named and Path(first).is_dir()):
                self._given = (self.usual, *self._given)
        found, unknown = super().parse_known_args(self._given, namespace)
        if unknown:
            self.error(self._hint(unknown) or f"unrecognized arguments: {' '.join(unknown)}")
        return found, []

    def error(self, message: str) -> Any:  # noqa: ANN401 (it never returns)
        """Print usage and message, or a JSON event for `--display json`, then exit with 2."""
        if "are required" in message and (hint := self._hint(self._given)):
            # argparse reports what is missing before what is unknown.
            message = hint
        if _is_json(self._given):
            json = importlib.import_module("json")
            event = {"event": "error", "text": f"{self.prog}: {message}", "faults": []}
            self.exit(2, json.dumps(event) + "\n")
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """Called by argparse for each value of an argument."""
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        if choices is None or value in choices:
            super()._check_value(action, value)
            return
        is_command = isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 (no public way)
        for old in (" ".join(self._given[:2]), value) if is_command else ():
            if old in _MOVED:
                self.exit(2, f"orchestrator {old} is now: orchestrator {_MOVED[old]}\n")
        what = f"unknown {str(action.metavar).lower()}" if is_command else "invalid choice:"
        near = _nearest(str(value), choices)
        hint = f"; did you mean {near!r}?" if near else f" (choose from {', '.join(choices)})"
        raise argparse.ArgumentError(None if is_command else action, f"{what} {value!r}{hint}")

    def _hint(self, arguments: Iterable[str]) -> str:
        """Return the message on the first option that is like one; "" if there is none."""
        known = list(self._option_string_actions)
        for argument in arguments:
            if argument == "--":
                break
            name = argument.partition("=")[0]
            if not name.startswith("--") or any(one.startswith(name) for one in known):
                continue
            if near := _nearest(name, known):
                return f"unrecognized arguments: {argument}; did you mean {near!r}?"
        return ""


def _is_json(arguments: Sequence[str]) -> bool:
    """Return True if a program reads stderr, by arguments that could not be parsed."""
    pairs = itertools.pairwise(arguments)
    return "--display=json" in arguments or ("--display", "json") in pairs


def _nearest(name: str, known: Iterable[str]) -> str:
    # Only a wrong command needs it, and `--help` loads nothing that it does not need.
    difflib = importlib.import_module("difflib")
    found: list[str] = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else ""


VARIABLE: Final = "_ARGCOMPLETE"
"""Set by the shell where it asks for completions instead of running the program."""
SHELLS: Final = ("bash", "zsh", "fish")
_HELP: Final = ("-h", "--help")


class Completion(argparse.Action):
    """Prints what a shell has to evaluate, and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 (of argparse)
        values: object,
        option_string: str | None = None,  # noqa: ARG002 (of argparse)
    ) -> None:
        """Called by argparse."""
        argcomplete = importlib.import_module("argcomplete")
        sys.stdout.write(argcomplete.shellcode(["orchestrator"], shell=values) + "\n")
        parser.exit()


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, and end the process."""
    argcomplete: Any = importlib.import_module("argcomplete")
    files = argcomplete.completers.FilesCompleter()
    for action in _actions(parser):
        if action.metavar in _COMPLETED and action.choices is None:
            action.completer = _Names(files, runs=action.metavar != "RECIPE")  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


_COMPLETED: Final = frozenset({"RECIPE", "RUN", "OTHER", "RUNS"})


class _Names:
    """Completes names of recipes or of runs, and paths."""

    def __init__(self, files: Any, *, runs: bool) -> None:  # noqa: ANN401 (of argcomplete)
        self._files = files
        self._runs = runs

    def __call__(self, prefix: str, **given: object) -> list[str]:
        """Called by argcomplete, which leaves out what does not begin with the prefix."""
        names = _run_names() if self._runs else _recipe_names()
        return [*names, *self._files(prefix, **given)]


def _run_names() -> list[str]:
    # Shell code may be made of a name, so only plain ones are given.
    return sorted(
        path.parent.name
        for path in Path(RUNS).glob("*/" + STORE_NAME)
        if path.parent.name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    )


def _recipe_names() -> list[str]:
    available = importlib.import_module("orchestrator.recipe.load").available
    return [path.stem for path in available()]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 (argparse has no public way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def open_streams() -> None:
    """Open what the caller has closed (`2>&-`): else the next file, such as the store, gets it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def said_by_system(error: OSError) -> str:
    """Return what the system says about a file or a connection, with a limit that was met."""
    where = "" if error.filename is None else f"{error.filename}: "
    limit = ""
    if error.errno == errno.EMFILE:
        limit = f"; {few_files()}"
    return f"{where}{error.strerror or error}{limit}"


def end_at_once(codes: Sequence[int]) -> None:
    """End the process without freeing its objects, a quarter of a short command's processor time.

    Without an exit code the command did not return, and nothing is done.
    """
    if codes:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(codes[0])
