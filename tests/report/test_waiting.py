"""Progress of long commands: lines now and then in a log, a bar on a terminal."""

import io

from orchestrator.report.live import progress
from tests.terminals import Terminal


def test_a_short_task_writes_nothing_into_a_log():
    stream = io.StringIO()
    with progress("counting items", 10, stream) as advance:
        for _ in range(10):
            advance(1)
    assert not stream.getvalue()


def test_a_long_task_writes_how_far_it_is(monkeypatch):
    stream, now = io.StringIO(), iter(range(0, 1000, 6))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    with progress("counting items", 2_000, stream) as advance:
        for _ in range(4):
            advance(500)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("counting items: ")
    assert lines[0].endswith(" of 2,000")
    assert len(lines) < 4


def test_a_terminal_shows_a_bar_with_the_count():
    stream = Terminal()
    with progress("counting items", 10, stream) as advance:
        advance(10)
    assert "counting items" in stream.getvalue()
    assert "10/10" in stream.getvalue()
