"""Optional parts of the installation: a command that needs one says which, and how to get it."""

import importlib.util
from collections.abc import Iterable

from orchestrator.errors import UsageError


def need(what: str, extra: str, modules: Iterable[str]) -> None:
    """See that the modules of an extra are installed.

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
