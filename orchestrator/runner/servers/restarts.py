"""Ends of launched servers, and their restarts. No I/O."""

import re
from typing import Final

import msgspec

from orchestrator.errors import LaunchError

# Numbers and addresses differ from time to time where the reason is the same.
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class Restarts(msgspec.Struct, frozen=True):
    """Limits on restarts of a server that ended.

    Attributes:
        at_most: Crashes in a row of a server that has answered. More than the attempts of a
            request, so that one request which ends its server each time runs out of attempts before
            its model runs out of servers.
        first_wait_s: Before the first restart; doubled each time.
        max_wait_s: Bound of the wait.
        steady_s: A server that ran so long has shown that it can; its earlier crashes are
            forgotten.
    """

    at_most: int = 6
    first_wait_s: float = 0.5
    max_wait_s: float = 30.0
    steady_s: float = 600.0

    def wait_s(self, n_crashes: int) -> float | None:
        """Seconds before the next start, after so many crashes in a row; None: give up."""
        if n_crashes > self.at_most:
            return None
        return min(self.max_wait_s, self.first_wait_s * 2.0 ** (n_crashes - 1))


class End(msgspec.Struct, frozen=True):
    """The end of a server, or its failure to become ready.

    Attributes:
        said: In words.
        cause: By which two ends are told to be alike.
    """

    said: str
    cause: str

    def is_like(self, other: "End | None") -> bool:
        """Return whether both have the same reason, but for numbers."""
        return other is not None and self.cause == other.cause


def ended(name: str, code: int | None, error: str) -> End:
    """Return the end of a server that had been ready.

    Args:
        name: Of the server.
        code: As `subprocess` counts (negative: a signal); None where it is not known.
        error: The first that it wrote; empty for none.
    """
    match code:
        case None:
            how = "ended"
        case 0:
            # vLLM calls it an orderly end when its engine died.
            how = "exited by itself (exit code 0)"
        case _ if code < 0:
            how = f"was killed by signal {-code}"
        case _:
            how = f"exited with code {code}"
    said = f"the server {name!r} {how}" + (f" after its error: {error}" if error else "")
    return End(said, _NUMBER.sub("#", error) or how)


def out_of_reach(name: str) -> End:
    """Return the end of a server on another machine that accepts no connections any more."""
    how = "is out of reach on its machine"
    return End(f"the server {name!r} {how}", how)


def silent(name: str) -> End:
    """Return the end of a server that ran and answered nothing any more, so that it was killed."""
    how = "answered nothing any more, not even what it is, and was ended"
    return End(f"the server {name!r} {how}", how)


def told_to_end(name: str) -> End:
    """Return the end of a server that its machine told to end."""
    how = "was told to end by its machine (preempted, cancelled, or at its time limit)"
    return End(f"the server {name!r} {how}", how)


def start_failed(error: LaunchError) -> End:
    """Return the end of a server that never became ready."""
    said = str(error).partition("\n")[0]
    return End(said, _NUMBER.sub("#", said))
