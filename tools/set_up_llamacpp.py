"""Builds llama-server into `.llamacpp`; the second time it does nothing.

`python tools/set_up_llamacpp.py`, called by `make test-llamacpp`. The source is the tree of
llama.cpp inside the source distribution of llama-cpp-python, which pip knows where to get; of it
one program is built, by the CMake that is there, else by pip's, and the C++ compiler. About ten
minutes on two cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".llamacpp"
PROGRAM: Final = FOLDER / "llama-server"
STAMP: Final = FOLDER / ".setup-stamp"
VERSION: Final = "0.3.36"
"""Of llama-cpp-python."""
OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    # A program for any machine of this kind, as numbers must not depend on who built it.
    "-DGGML_NATIVE=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    # Else it takes the number of whatever git repository lies around it.
    f"-DLLAMA_BUILD_COMMIT=llama-cpp-python-{VERSION}",
    "-DLLAMA_BUILD_NUMBER=0",
)


def main() -> None:
    """Build where it is needed; exit code 1 with the tool's own words where it can't be."""
    if PROGRAM.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == VERSION:
        return
    if shutil.which("c++") is None and shutil.which("g++") is None:
        sys.exit("set-up: a C++ compiler is needed (Debian, Ubuntu: sudo apt install g++ make)")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llamacpp-") as work:
        built = build(source(Path(work)), Path(work))
        FOLDER.mkdir(exist_ok=True)
        part = PROGRAM.with_suffix(".part")
        shutil.copy2(built, part)
        part.replace(PROGRAM)
    STAMP.write_text(VERSION, encoding="utf-8")
    print(f"set-up: {PROGRAM.relative_to(ROOT)} built in {time.monotonic() - start:.0f} s")


def source(work: Path) -> Path:
    """Fetch and unpack; the folder of llama.cpp."""
    name = f"llama-cpp-python=={VERSION}"
    print(f"set-up: {name} (its source holds llama.cpp)")
    (work / "sdist").mkdir()
    _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
         "llama-cpp-python", "-d", str(work / "sdist"), name)  # fmt: skip
    (archive,) = (work / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(work / "source", filter="data")
    (found,) = (work / "source").glob("*/vendor/llama.cpp")
    return found


def build(folder: Path, work: Path) -> Path:
    """Build llama-server; where it lies."""
    cmake = shutil.which("cmake") or cmake_of_pip(work / "tools")
    _run(cmake, "-S", str(folder), "-B", str(work / "build"), *OPTIONS)
    jobs = os.environ.get("JOBS") or str(os.cpu_count() or 1)
    _run(cmake, "--build", str(work / "build"), "--target", "llama-server", f"-j{jobs}")
    return work / "build" / "bin" / "llama-server"


def cmake_of_pip(folder: Path) -> str:
    """CMake in an environment of its own."""
    venv.create(folder, with_pip=True)
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "cmake")
    return str(folder / "bin" / "cmake")


def _run(*command: str) -> None:
    ended = subprocess.run(command, check=False)
    if ended.returncode:
        sys.exit(f"set-up: {Path(command[0]).name} {command[1]} … failed, see above")


if __name__ == "__main__":
    main()
