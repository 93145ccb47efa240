"""Every error this project raises on purpose, with the exit code it leads to.

    OrchestratorError               exit 1   base of all
    ├── UsageError                  exit 2   the recipe or the command is wrong; nothing was sent
    │   ├── RecipeError                      all faults of a recipe, each with file:line
    │   ├── PluginError                      no such kind, or a kind that breaks its contract
    │   │   └── NotAllowedError              code that may not run without permission
    │   ├── DatasetError                     a dataset is missing or malformed
    │   ├── RunDirectoryError                locked, foreign, or of a newer schema
    │   └── ServerChangedError               a server is not the one the run was started with
    ├── LaunchError                 exit 1   a server did not become ready, or died for good
    │   ├── NodeLostError                    a cluster says that a node is lost
    │   └── SchedulerError                   a cluster's scheduler gave no answer
    ├── StoreError                  exit 1   the store can't be written or read
    ├── MethodError                 exit 1   a fault inside a method, not in what it evaluates
    ├── StatisticsError             exit 1   a statistic was asked of data that can't give it
    └── ask.AskFailed               -        raised inside a method when what it asked for failed

A failed request is not an error but a value: `records.Failure`.
"""

import contextlib
import errno
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unicodedata import normalize

EXIT_COMPLETE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PARTIAL = 3
EXIT_GATE_FAILS = 4
EXIT_GATE_OPEN = 5
EXIT_INTERRUPTED = 130


class OrchestratorError(Exception):
    """Base of every error raised on purpose; its text is meant for the user."""

    exit_code: ClassVar[int] = EXIT_FAILED


class UsageError(OrchestratorError):
    """The recipe or the command is wrong; nothing was sent."""

    exit_code: ClassVar[int] = EXIT_USAGE


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault of a recipe: where (1-based line, 0 for none) and what."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class RecipeError(UsageError):
    """All faults of a recipe at once, sorted by line."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = sorted(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class PluginError(UsageError):
    """No plug-in of that kind, or one that breaks its contract."""


class NotAllowedError(PluginError):
    """Code that a recipe names, which may not run without permission."""


class DatasetError(UsageError):
    """A dataset is missing or malformed."""


class RunDirectoryError(UsageError):
    """The run directory is locked, foreign, or of a newer schema."""


class RunInUseError(RunDirectoryError):
    """Another process writes the run."""


class ServerChangedError(UsageError):
    """A server is not the one the run was started with."""


class LaunchError(OrchestratorError):
    """A server did not become ready, or died for good."""


class NodeLostError(LaunchError):
    """A server did not start because its node of a cluster is lost, as the cluster says.

    Attributes:
        node: Its name.
    """

    def __init__(self, node: str, message: str) -> None:
        super().__init__(message)
        self.node = node


class SchedulerError(LaunchError):
    """A cluster's scheduler gave no answer, so that nothing is known of a server."""


class StoreError(OrchestratorError):
    """The store can't be written or read."""


class MethodError(OrchestratorError):
    """A fault inside a method, not in what it evaluates."""


class StatisticsError(OrchestratorError, ValueError):
    """A statistic was asked of data that can't give it."""


def nearest(word: str, known: Iterable[object], listed: str = "available") -> str:
    """Return the end of a message: the nearest name, or a list of what there is under a title."""
    from difflib import get_close_matches  # noqa: PLC0415 (`--help` loads little)

    names = [str(name) for name in known if str(name) != word]
    if near := get_close_matches(word, names, n=1):
        form = " in Unicode form NFC" if near[0] == normalize("NFC", word) else ""
        return f"; did you mean {near[0]!r}{form}?"
    return f"; {listed}: {', '.join(names)}" if names and listed else ""


@contextlib.contextmanager
def on_disk_error(said: str, raised: type[OrchestratorError] = UsageError) -> Iterator[None]:
    """Raise an error of ours for one of the disk: what is said, then why."""
    try:
        yield
    except OSError as error:
        # A full disk is no slip in a command.
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        why = error.strerror or str(error)
        if isinstance(error, FileExistsError | NotADirectoryError) and error.filename:
            path = Path(error.filename)
            file = next((above for above in (path, *path.parents) if above.is_file()), None)
            why = why if file is None else f"{file} is a file, and a folder is needed"
        raise (StoreError if full else raised)(f"{said}: {why}") from error


def need(what: str, extra: str, modules: Iterable[str]) -> None:
    """See that the modules of an extra, an optional part of the installation, are there.

    Args:
        what: That needs them, for the message.
        extra: That brings them.
        modules: Names to import.

    Raises:
        UsageError: If one is missing.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{what} needs {', '.join(missing)}: pip install 'selfeval-orchestrator[{extra}]'"
        )
