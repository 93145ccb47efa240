"""Running commands with little memory."""

import resource
import subprocess
import sys

from tests.e2e.runs import ROOT

ADDRESS_SPACE_BYTES = 4 << 30


def orchestrator(*arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the real command with 4 GiB of address space."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        preexec_fn=_limit,
    )


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
