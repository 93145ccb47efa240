"""Another user of this machine, as whom only root can act."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

NOBODY: Final = 65_534
SOMEBODY: Final = 65_533
ADDRESS_SPACE_BYTES: Final = 4 << 30

# Python may stand in a folder of root's, so everything may be read; what may be written, and what
# belongs to whom, is as for any other user.
_READS: Final = "+dac_read_search"
_AS_NOBODY: Final = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    f"--inh-caps={_READS}", f"--ambient-caps={_READS}", "--",
)  # fmt: skip


def lacks_others() -> bool:
    """Return whether this user may not act as another one."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return True
    return subprocess.run((*_AS_NOBODY, "true"), capture_output=True, check=False).returncode != 0


def started(here: Path, home: Path, *arguments: object, **how: Any) -> subprocess.Popen[str]:
    """Start the command as another user who has 4 GiB of address space."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return subprocess.Popen(
        [*_AS_NOBODY, sys.executable, "-m", "orchestrator", *map(str, arguments)],
        cwd=here, text=True, preexec_fn=limit_memory,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**env, "HOME": str(home), "PYTHONPATH": os.environ["PYTHONPATH"]}, **how,
    )  # fmt: skip


def given_to(uid: int, path: Path, mode: int | None = None) -> Path:
    """Give a path and all below it to a user; folders get `mode`."""
    for one in (path, *path.rglob("*")):
        os.chown(one, uid, uid, follow_symlinks=False)
        if mode is not None and one.is_dir() and not one.is_symlink():
            one.chmod(mode)
    return path


def limit_memory() -> None:
    """Bound the address space of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
