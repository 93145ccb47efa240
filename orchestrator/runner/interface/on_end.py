"""The command of `on_end`: run by the shell when a call of a run ends, bounded, with the result."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.recipe.settings import OnEnd
from orchestrator.report.display import Display
from orchestrator.report.gate import gate_words
from orchestrator.report.progress import Completeness
from orchestrator.report.text import safe_line
from orchestrator.secrets import is_secret, is_secret_name
from orchestrator.trackers import State

if TYPE_CHECKING:
    from orchestrator.runner.interface.result import Result

LOG: Final = "on_end.log"
_INHERITED: Final = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR", "TZ", "USER",
})  # fmt: skip
_INHERITED_PREFIXES: Final = ("LC_", "XDG_")
_GRACE_S: Final = 2.0
_MAX_TEXT: Final = 1000


@contextlib.contextmanager
def hooked(hook: OnEnd | None, name: str, where: Path, shown: Display) -> "Iterator[list[Result]]":
    """Run the command when the block ends, also by an error; it never changes how the block ends.

    Yields a list that the block puts its result in.
    """
    ended: list[Result] = []
    error: BaseException | None = None
    try:
        yield ended
    except BaseException as raised:
        error = raised
        raise
    finally:
        if hook is not None:
            result = ended[0] if ended else None
            path = where if result is None else result.path
            told = {"ORCHESTRATOR_NAME": name, **_told(result, path, error)}
            if fault := call(hook, path, told):
                shown.note(f"on_end: {fault}")


def own_hook(command: str) -> OnEnd:
    """Return a command that the user gave with the call; unlike a recipe's it gets all variables.

    Raises:
        UsageError: If it is empty, or holds a secret.
    """
    if not command.strip():
        raise UsageError("on_end: the command is empty")
    if is_secret(command):
        raise UsageError(
            "on_end: the command looks as if it holds a secret; name a variable of your "
            "environment instead, all of which it gets"
        )
    names = [name for name in os.environ if name.isascii() and name.isidentifier()]
    return OnEnd(command=command, env_from=names)


def state_of(result: "Result") -> State:
    """Return how a call that has a result ended."""
    if result.ended is not None and result.ended.interrupted:
        return "interrupted"
    return "complete" if result.ok else "partial"


def _told(result: "Result | None", path: Path, error: BaseException | None) -> dict[str, str]:
    done = Completeness() if result is None else result.completeness
    if result is None:
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    else:
        state = state_of(result)
    told = {
        "ORCHESTRATOR_RUN": str(path.absolute()),
        "ORCHESTRATOR_STATE": state,
        "ORCHESTRATOR_UNITS": str(done.total - done.not_needed),
        "ORCHESTRATOR_UNITS_ENDED": str(done.ended),
        "ORCHESTRATOR_UNITS_FAILED": str(done.failed),
        "ORCHESTRATOR_UNITS_LEFT": str(done.left),
    }
    if isinstance(error, OrchestratorError):
        told["ORCHESTRATOR_ERROR"] = safe_line(str(error))[:_MAX_TEXT]
    return told | ({} if result is None else _found(result))


def _found(result: "Result") -> dict[str, str]:
    """The findings of a run, in sentences, and the verdict on the gates of its recipe."""
    gate, fault = result.gate, result.gate_fault
    said = "" if gate is None else gate_words(gate)
    if fault is not None:
        said = f"The gate cannot be decided: {fault}"
    try:
        brief = result.brief
        answers = [brief.incomplete, *(question.answer.text() for question in brief.questions)]
    except OrchestratorError:
        # The call is about to show this error itself.
        answers = []
    sentences = " ".join(filter(None, answers))
    return {
        "ORCHESTRATOR_ANSWER": safe_line(sentences)[:_MAX_TEXT],
        "ORCHESTRATOR_GATE": "" if gate is None else gate.verdict,
        "ORCHESTRATOR_GATE_SUMMARY": safe_line(said)[:_MAX_TEXT],
    }


def call(hook: OnEnd, path: Path, told: Mapping[str, str]) -> str:
    """Run the command to its end; return why it failed, empty if it did not.

    Its output goes to `on_end.log` in the run directory. What it leaves running is ended with it.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in hook.env_from
        or (
            (name in _INHERITED or name.startswith(_INHERITED_PREFIXES))
            and not is_secret_name(name)
        )
    }
    log = path / LOG
    try:
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(_opened(log)) if path.is_dir() else subprocess.DEVNULL
            process = subprocess.Popen(  # noqa: S603 (a command that the user allowed)
                ["/bin/sh", "-c", hook.command],
                env={**environment, **told},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        return f"cannot be started: {error.strerror or error}"
    try:
        code = process.wait(hook.timeout_s)
    except subprocess.TimeoutExpired:
        return f"stopped after {hook.timeout_s:g} s (timeout_s); its output is in {log}"
    else:
        return f"exit code {code}; its output is in {log}" if code else ""
    finally:
        _end(process)


def _opened(log: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(log, flags, 0o600), "wb")


def _end(process: subprocess.Popen[bytes]) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
