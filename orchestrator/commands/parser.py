"""The command line: parser, values of options, completion in the shell, end of the process."""

import argparse
import contextlib
import errno
import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.disk.files import few_files
from orchestrator.disk.paths import RUNS, STORE_NAME
from orchestrator.errors import nearest

T = TypeVar("T")

LISTED: Final = (
    "methods", "analyses", "statistics", "backends", "datasets", "plugins", "recipes", "weights",
)  # fmt: skip
"""What `orchestrator list` lists; "plugins" is all that a package can add."""
_MAX_PORT: Final = 65_535
# Where commands of a plain name are.
_MOVED = {kind: f"list {kind}" for kind in LISTED} | {
    "merge": "runs merge", "repair": "runs repair", "gc": "runs gc", "serve": "servers serve",
    "probe": "servers probe", "recipes copy": "get recipe", "weights get": "get weights",
    "completion": "--completion",
}  # fmt: skip
# What does now what an option of development versions did.
_REPLACED: Final = {"--charts": "export RUN --figures DIR"}


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
            self.error(self._advice(unknown) or f"unrecognized arguments: {' '.join(unknown)}")
        return found, []

    def error(self, message: str) -> Any:  # noqa: ANN401 (it never returns)
        """Print usage and message, or a JSON event for `--display json`, then exit with 2."""
        if "are required" in message and (hint := self._advice(self._given)):
            # argparse reports what is missing before what is unknown.
            message = hint
        # A program reads stderr; the arguments could not be parsed.
        if "--display=json" in self._given or ("--display", "json") in itertools.pairwise(
            self._given
        ):
            json = importlib.import_module("json")
            event = {"event": "error", "text": f"{self.prog}: {message}", "faults": []}
            self.exit(2, json.dumps(event) + "\n")
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """Called by argparse for each value of an argument."""
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        if choices is None and isinstance(value, str) and not value.strip():
            raise argparse.ArgumentError(action, "the value is empty; is a shell variable unset?")
        if choices is None or value in choices:
            super()._check_value(action, value)
            return
        is_command = isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 (no public way)
        for old in (" ".join(self._given[:2]), value) if is_command else ():
            if old in _MOVED:
                self.exit(2, f"orchestrator {old} is now: orchestrator {_MOVED[old]}\n")
        what = f"unknown {str(action.metavar).lower()}" if is_command else "invalid choice:"
        hint = nearest(str(value), choices, "") or f" (choose from {', '.join(choices)})"
        raise argparse.ArgumentError(None if is_command else action, f"{what} {value!r}{hint}")

    def _advice(self, arguments: Iterable[str]) -> str:
        """Return the message on the first option that is like one; "" if there is none."""
        known = list(self._option_string_actions)
        for argument in arguments:
            if argument == "--":
                break
            name = argument.partition("=")[0]
            if name in _REPLACED:
                return f"{name} is gone; use: orchestrator {_REPLACED[name]}"
            if not name.startswith("--") or any(one.startswith(name) for one in known):
                continue
            # All begin alike, which is no likeness.
            if near := nearest(name[2:], [one[2:] for one in known], ""):
                return (
                    f"unrecognized arguments: {argument}{near.replace(chr(39), chr(39) + '--', 1)}"
                )
        return ""


# -- values of options -----------------------------------------------------------------------------


def value(
    pattern: str, expected: str, read: Callable[[re.Match[str]], T | None]
) -> Callable[[str], T]:
    """Return the type of an argument, in argparse's sense.

    Args:
        pattern: Of its whole text.
        expected: A few words on it, for the message.
        read: Returns the value of a text that matches; None where it is out of range.
    """

    def parse(text: str) -> T:
        found = re.fullmatch(pattern, text, re.ASCII)
        if found is None or (result := read(found)) is None:
            raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")
        return result

    return parse


def _level(found: re.Match[str]) -> float | None:
    with contextlib.suppress(ValueError):
        if 0.0 < (level := float(found[0])) < 1.0:
            return level
    return None


_NUMBER: Final = "([1-9][0-9]{0,5})"
# As the recipe's `subset`, whose pattern only commands that read recipes import.
_SHARE: Final = r"(?:100(?:\.0+)?|[1-9][0-9]?(?:\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)%"
SHARD: Final = value(
    f"{_NUMBER}/{_NUMBER}",
    "I/N from 1/N to N/N, such as 2/8",
    lambda found: f"subset={found[0]}" if int(found[1]) <= int(found[2]) else None,
)
"""A shard, as an override of the recipe's `subset`."""
SHARDS: Final = value(
    f"{_NUMBER}(?:%{_NUMBER})?",
    "N or N%K, such as 32 or 32%8",
    lambda found: (int(found[1]), min(int(found[1]), int(found[2] or found[1]))),
)
"""The number of shards, and how many may run at a time."""
PART: Final = value(
    f"[1-9][0-9]*|{_SHARE}",
    "a number of items of at least 1, or a share such as 10%",
    lambda found: f"subset={found[0]}",
)
"""A part of the items, as an override of the recipe's `subset`."""
LEVEL: Final = value(".*", "a level between 0 and 1 such as 0.95", _level)
AGE: Final = value(
    r"(\d{1,6}(?:\.\d{1,6})?)([hdw]?)",
    "an age such as 30d, 12h or 8w",
    lambda found: float(found[1]) * 3600 * {"h": 1, "w": 7 * 24}.get(found[2], 24),
)
"""The seconds of an age."""
COUNT: Final = value(r"0*[1-9]\d*", "a whole number of at least 1", lambda found: int(found[0]))
PORT: Final = value(
    r"\d+",
    f"a port from 0 (any free port) to {_MAX_PORT}",
    lambda found: int(found[0]) if int(found[0]) <= _MAX_PORT else None,
)


# -- completion and the process --------------------------------------------------------------------

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
            action.completer = partial(_names, files, runs=action.metavar != "RECIPE")  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


_COMPLETED: Final = frozenset({"RECIPE", "RUN", "RUNS"})


def _names(files: Any, prefix: str, *, runs: bool, **given: object) -> list[str]:  # noqa: ANN401 (of argcomplete)
    """Return names of runs or of recipes, and paths; argcomplete leaves out what does not fit."""
    if runs:
        found = sorted(path.parent.name for path in Path(RUNS).glob("*/" + STORE_NAME))
        # Shell code may be made of a name, so only plain ones are given.
        names = [name for name in found if re.sub("[-_.]", "", name).isalnum()]
    else:
        available = importlib.import_module("orchestrator.recipe.load").available
        names = [path.stem for path in available()]
    return [*names, *files(prefix, **given)]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 (argparse has no public way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def open_streams() -> None:
    """Open what the caller has closed (`2>&-`): else the next file, such as the store, gets it.

    In a locale without UTF-8 the program starts again in Python's UTF-8 mode (PEP 540), which
    servers inherit: else names that the locale can't write could not be used.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (as it was)


def words_of(error: OSError) -> str:
    """Return what the system says about a file or a connection, with a limit that was met."""
    where = "" if error.filename is None else f"{str(error.filename)[:200]}: "
    limit = f"; {few_files()}" if error.errno == errno.EMFILE else ""
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
