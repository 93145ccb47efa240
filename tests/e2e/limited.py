"""Running commands with little memory."""

import subprocess
import sys

from tests.e2e.runs import ROOT
from tests.others import limit_memory


def orchestrator(*arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the real command with 4 GiB of address space."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        preexec_fn=limit_memory,
    )
