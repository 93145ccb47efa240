"""Files that somebody still writes to."""

from pathlib import Path


def lines_of(path: Path) -> list[str]:
    """The whole lines so far; none where there is no such file yet.

    What is read while it is written may end within a line, and within a character.
    """
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1].decode("utf-8").splitlines()
