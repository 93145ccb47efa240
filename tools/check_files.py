"""Checks files given by name: they end with one newline, and YAML, TOML and JSON can be read."""

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import yaml


def _read_yaml(text: str) -> None:
    for _ in yaml.safe_load_all(text):
        pass


READERS: dict[str, Callable[[str], object]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".toml": tomllib.loads,
    ".json": json.loads,
}


def faults(path: Path) -> list[str]:
    """One line for each fault of a text file; none for a binary one."""
    content = path.read_bytes()
    if b"\0" in content or not content:
        return []
    found = []
    if not content.endswith(b"\n") or content.endswith(b"\n\n"):
        found.append(f"{path}: must end with exactly one newline")
    try:
        READERS.get(path.suffix, str)(content.decode())
    except (ValueError, yaml.YAMLError) as error:
        found.append(f"{path}: {error}")
    return found


def main() -> None:
    """Exit code 1 if a file has a fault."""
    found = [fault for name in sys.argv[1:] for fault in faults(Path(name))]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
