"""Writes the versions installed in this environment to constraints.txt, without addresses."""

import re
import subprocess
import sys
from pathlib import Path

HEAD = """\
# Versions that are tested together; pip takes them as constraints (see tools/set_up.py).
# Renew: make constraints
"""
NOT_PINNED = {"pip", "wheel"}


def main() -> None:
    """Write the file and say how many versions it pins."""
    command = [sys.executable, "-m", "pip", "freeze", "--all", "--exclude-editable"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pins = [pin for line in frozen.splitlines() if (pin := pinned(line))]
    path = Path(__file__).resolve().parents[1] / "constraints.txt"
    path.write_text(HEAD + "\n".join(pins) + "\n", encoding="utf-8")
    print(f"{len(pins)} versions pinned in {path.name}")


def pinned(line: str) -> str | None:
    """`name==version` without a local part such as +cpu; None for what can't be pinned so."""
    match = re.fullmatch(r"([\w.-]+)==([\w.!]+)(\+[\w.]+)?", line.strip())
    if match is None or match[1].lower() in NOT_PINNED:
        return None
    return f"{match[1]}=={match[2]}"


if __name__ == "__main__":
    main()
