"""Completion in the shell: commands, options, names of recipes and of runs (argcomplete)."""

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from orchestrator.disk.paths import RUNS, STORE_NAME

VARIABLE: Final = "_ARGCOMPLETE"
"""Set by the shell where it asks for completions instead of running the program."""
SHELLS: Final = ("bash", "zsh", "fish")


def completion(options: argparse.Namespace) -> int:
    """Print what a shell has to evaluate."""
    argcomplete = importlib.import_module("argcomplete")
    sys.stdout.write(argcomplete.shellcode(["orchestrator"], shell=options.shell) + "\n")
    return 0


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
    """Completes names of recipes or of runs, and paths.

    Args:
        files: Completes paths.
        runs: Names of runs instead of recipes.
    """

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
