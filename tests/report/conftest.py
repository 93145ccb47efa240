import pytest

from tests.browser import axe, browser  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True)
def _no_surrounding_terminal(monkeypatch):
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
