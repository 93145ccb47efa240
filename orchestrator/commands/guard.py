"""Reading a run of another user in a process of its own, whose time and memory are bounded.

The store, the recipe and the frames of such a run can be made to take all memory, or never to end.
The process that reads them may break; this one says so in a line, and Ctrl-C always ends both.
"""

import argparse
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from orchestrator.disk import files
from orchestrator.disk.paths import RUNS, distrust, is_foreign
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED

MEMORY_BYTES: Final = 4 << 30
"""Memory of the reading process."""
CPU_S: Final = 600
"""Processor time of it; without a bound where it serves pages until it is ended."""

_MARK: Final = "ORCHESTRATOR_GUARDED"
# What it needs to say that it was interrupted.
_GRACE_S: Final = 0.5
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of prctl(2)
_FEW_THREADS: Final = {"POLARS_MAX_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}
# The folder of this package last, so that nothing in it takes the place of another module; and
# nothing of the working directory, which may be the run's, is imported.
_START: Final = """import sys
sys.path.append(sys.argv.pop(1))
from orchestrator.commands import guard
guard.enter()
from orchestrator.cli import entry
entry()"""


def is_guarded() -> bool:
    """Return whether this process is the one that reads."""
    return _MARK in os.environ


def is_wanted(options: argparse.Namespace) -> bool:
    """Return whether a command reads runs of another user, in a process that is not bounded yet."""
    untrusted: bool | None = getattr(options, "untrusted", None)
    if untrusted is None:
        return False
    places = _places(options)
    if is_guarded():
        # Bounded already; what it was told to distrust it reads as another user's.
        for place in places if untrusted else ():
            distrust(place)
        return False
    return untrusted or any(map(is_foreign, _runs(places)))


def _places(options: argparse.Namespace) -> list[Path]:
    if hasattr(options, "folder"):
        return [Path(options.folder)]
    named: Sequence[str] = (
        [options.run, *getattr(options, "beside", ())]
        if hasattr(options, "run")
        else getattr(options, "compared", None) or options.runs
    )
    against: str | None = getattr(options, "against", None)
    named = [*(named or [RUNS]), *([] if against is None else [against])]
    # A name may stand for a run in runs/.
    return [place for one in named for place in (Path(one), Path(RUNS) / one)]


def _runs(places: Sequence[Path]) -> list[Path]:
    """The places, what is in them, and what `--fresh` began beside them."""
    found = [*places]
    for place in places:
        with contextlib.suppress(OSError):
            found += [one for one in place.iterdir() if one.is_dir()]
        with contextlib.suppress(OSError):
            beside = place.absolute().parent.iterdir()
            found += [one for one in beside if one.name.startswith(f"{place.name}.")]
    return found


def call(arguments: Sequence[str], options: argparse.Namespace) -> int:
    """Run the command in a bounded process, and return its exit code."""
    # No place for what it leaves: it may be killed.
    with files.temporary_folder() as side, _signals_held() as release:
        process = subprocess.Popen(  # noqa: S603 (this program)
            [
                sys.executable,
                "-P",
                "-c",
                _START,
                str(Path(__file__).resolve().parents[2]),
                *arguments,
            ],
            env=os.environ | _FEW_THREADS | {_MARK: options.handler, "TMPDIR": str(side)},
            # Ctrl-C comes to this process alone, which knows how long to wait.
            process_group=0,
        )
        try:
            release()
            code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            process.kill()
            process.wait()
            _say("interrupted")
            return EXIT_INTERRUPTED
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code >= 0:
        return code
    _say(
        f"cannot read this untrusted run within {MEMORY_BYTES >> 30} GiB of memory and "
        f"{CPU_S // 60} minutes of processor time ({signal.Signals(-code).name}): the run is "
        "damaged, malicious or very large. A copy that you own is read without limits"
    )
    return EXIT_FAILED


def enter() -> None:
    """Bound this process, which was started by `call`."""
    # What may be written to, and not all address space: charts are drawn by a program that reserves
    # 64 GiB. Only Linux counts maps of memory there.
    is_linux = sys.platform.startswith("linux")
    _bound(resource.RLIMIT_DATA if is_linux else resource.RLIMIT_AS, MEMORY_BYTES)
    _bound(resource.RLIMIT_CORE, 0)
    if not os.environ[_MARK].startswith("view"):
        _bound(resource.RLIMIT_CPU, CPU_S)
    if is_linux:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _bound(what: int, value: int) -> None:
    _, most = resource.getrlimit(what)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(what, (value, value))


@contextlib.contextmanager
def _signals_held() -> Iterator[Callable[[], None]]:
    """Inside, SIGINT and SIGTERM wait until the function that is given is called.

    An exception in the midst of starting a process would leave it to nobody. From then on SIGTERM
    ends this process by an exception, so that what it started ends too.
    """
    came: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's parameters)
        came.append(number)

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (as above)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}

    def release() -> None:
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        while came:
            signal.raise_signal(came.pop())

    try:
        yield release
    finally:
        try:
            release()
        finally:
            signal.signal(signal.SIGTERM, before[signal.SIGTERM])


def _say(text: str) -> None:
    sys.stderr.write(f"orchestrator: {text}\n")
