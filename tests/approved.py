"""Texts that someone has looked at: a file each, which `pytest --approve` writes anew."""

import difflib
import re
from pathlib import Path

import pytest

_NO_NAME = re.compile(r"[^\w.-]+")


def file_of(test: Path, name: str) -> Path:
    """Return where the approved text of a test is kept: in `approved/` beside its file."""
    shown = _NO_NAME.sub("_", name.removeprefix("test_")).strip("_")
    return test.parent / "approved" / f"{test.stem.removeprefix('test_')}.{shown}.txt"


class Approved:
    """Compares a text with the approved one of a test, or takes its place."""

    def __init__(self, path: Path, *, is_written: bool) -> None:
        self.path = path
        self.is_written = is_written

    def __call__(self, text: str, **hidden: object) -> None:
        """Compare; values in `hidden` differ between runs, and are shown by their names."""
        for name, value in hidden.items():
            text = text.replace(str(value), name.upper())
        text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        if self.is_written:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(text, "utf-8")
        kept = self.path.read_text("utf-8") if self.path.exists() else ""
        if text != kept:
            lines = difflib.unified_diff(
                kept.splitlines(), text.splitlines(), "approved", "now", lineterm=""
            )
            said = "\n".join(lines)
            pytest.fail(f"{self.path.name} differs; --approve rewrites it:\n{said}", pytrace=False)


@pytest.fixture
def approved(request: pytest.FixtureRequest) -> Approved:
    """The approved text of this test: called with the text of now."""
    path = file_of(request.path, request.node.name)
    return Approved(path, is_written=request.config.getoption("--approve"))
