import json
import logging
import os
import subprocess
import sys
import threading

import msgspec
import pytest

from orchestrator.errors import UsageError
from orchestrator.report.display import SayingHandler, ThreadedDisplay, make_display
from orchestrator.report.lines import JsonPainter
from tests.report.samples import Stream, a_model, a_progress, a_ranking


def shown(kind, *updates, encoding="utf-8"):
    stream = Stream(encoding)
    display = make_display(kind, stream)
    display.start("demo", 1000)
    for update in updates:
        display.update(update)
        _drain(display)
    display.stop()
    return stream.getvalue()


def _drain(display):
    """Wait until the display's thread has taken what it was given."""
    taken = threading.Event()
    display._put(lambda _: taken.set())
    assert taken.wait(60)
    with display._changed:
        pass


def test_no_terminal_means_plain():
    stream = Stream()
    display = make_display(None, stream)
    display.start("demo", 1000)
    display.stop()
    assert stream.getvalue() == "demo: 1,000 units\n"


def test_plain_says_when_a_model_changes_state():
    text = shown("plain", a_progress(models=(a_model(state="starting"),)), a_progress(2.0))
    assert "[0:00:01] judge: idle → starting\n" in text
    assert "[0:00:02] judge: starting → ready\n" in text


def test_plain_gives_numbers_each_ten_seconds_and_at_the_end():
    updates = [a_progress(float(second)) for second in range(1, 26)]
    lines = [line for line in shown("plain", *updates).splitlines() if "units ·" in line]
    assert [line[:9] for line in lines] == ["[0:00:10]", "[0:00:20]", "[0:00:25]"]
    assert "150 of 1,000 units · 100 stored · 2 failed · 8 open" in lines[0]


def test_plain_says_why_it_stops():
    text = shown("plain", a_progress(stopping="interrupted"))
    assert "stopping: interrupted; 3 requests in flight" in text


def test_plain_shows_the_forming_ranking_each_minute():
    updates = [a_progress(float(at), rankings=(a_ranking(),)) for at in range(5, 130, 5)]
    lines = [line for line in shown("plain", *updates).splitlines() if "after 40 prompts" in line]
    assert [line[:9] for line in lines] == ["[0:01:00]", "[0:02:00]"]


@pytest.mark.parametrize("stops_early", [False, True])
def test_plain_says_that_intervals_do_not_allow_for_a_stopping_rule(stops_early):
    ranking = msgspec.structs.replace(a_ranking(), stops_early=stops_early)
    text = shown("plain", a_progress(60.0, rankings=(ranking,)))
    assert ("after 40 prompts, ± not adjusted for stopping" in text) == stops_early


def test_plain_says_when_it_is_paused_and_goes_on():
    text = shown("plain", a_progress(paused=True), a_progress(2.0))
    assert "[0:00:01] paused\n" in text
    assert "[0:00:02] resumed\n" in text


def test_plain_on_an_ascii_stream_is_ascii():
    assert shown("plain", a_progress(models=(a_model("modèle"),)), encoding="ascii").isascii()


def test_json_is_one_event_a_line():
    events = [
        json.loads(line) for line in shown("json", a_progress(), a_progress(3.0)).splitlines()
    ]
    assert [event["event"] for event in events] == ["start", "progress", "progress", "stop"]
    assert events[0] == {"event": "start", "title": "demo", "total": 1000}
    assert events[2]["models"][0]["name"] == "judge"
    assert events[2]["requests_per_s"] == 0.0
    assert events[1]["requests_per_s"] is None


def test_json_holds_no_control_character():
    stream = Stream()
    display = make_display("json", stream)
    display.start("demo", 1)
    display.note("\x1b[31m\u202e")
    display.stop()
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()


def test_none_writes_nothing():
    stream = Stream()
    display = make_display("none", stream)
    display.start("demo", 1)
    display.update(a_progress())
    display.note("x")
    display.stop()
    assert not stream.getvalue()


def test_live_on_a_terminal_redraws_and_leaves_nothing():
    stream = Stream(tty=True)
    display = make_display(None, stream)
    display.start("demo", 1000)
    display.update(a_progress())
    display.note("\x1b[31mserver died")
    display.stop()
    text = stream.getvalue()
    assert "Ctrl-C" in text
    assert r"\x1b[31mserver died" in text
    assert text.endswith("\x1b[2K")


def test_live_without_a_terminal_becomes_plain():
    assert shown("live").startswith("demo: 1,000 units")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Stream(tty=True)
    display = make_display(None, stream)
    display.start("demo", 2)
    display.stop()
    assert stream.getvalue() == "demo: 2 units\n"


def test_an_unknown_kind_is_named():
    with pytest.raises(
        UsageError, match="no display 'pretty'; available: auto, live, plain, json, note"
    ):
        make_display("pretty", Stream())  # type: ignore[arg-type]


class _Broken:
    min_gap_s = 0.0

    def __init__(self, stream):
        pass

    def start(self, title, total):
        raise RuntimeError("a fault in a display")


def test_a_fault_in_a_display_ends_the_display_only(caplog):
    display = ThreadedDisplay(_Broken, Stream())  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        display.start("demo", 1)
        display.update(a_progress())
        display.stop()
    assert "the run continues without it" in caplog.text


def test_a_closed_pipe_is_swallowed():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        display = make_display("json", stream)
        display.start("demo", 1)
        for _ in range(3):
            display.update(a_progress())
        display.stop()


def test_a_pipe_that_nobody_reads_holds_up_nothing(monkeypatch):
    monkeypatch.setattr("orchestrator.report.display._STOP_S", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        display = ThreadedDisplay(JsonPainter, stream)
        display.start("demo", 1)
        for _ in range(5000):
            display.note("x" * 200)
        display.stop()
        # Let the stuck thread end: its reader goes away.
        os.close(reading)
        assert display._thread is not None
        display._thread.join(5)
        assert not display._thread.is_alive()


def test_a_closed_pipe_does_not_change_the_exit_code():
    script = (
        "import sys\n"
        "from orchestrator.report.display import make_display\n"
        "d = make_display('plain', sys.stderr)\n"
        "d.start('demo', 1)\n"
        "for _ in range(100): d.note('x' * 1000)\n"
        "d.stop()\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", script], stderr=writing, timeout=30, check=False)
    os.close(writing)
    assert done.returncode == 0


def test_log_records_become_notes():
    stream = Stream()
    display = make_display("plain", stream)
    display.start("demo", 1)
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "a limit was cut", None, None)
    SayingHandler(display.note).handle(record)
    display.stop()
    assert "a limit was cut" in stream.getvalue()


@pytest.mark.parametrize("kind", ["plain", "json", "live"])
def test_a_note_without_a_run_is_shown(kind):
    stream = Stream(tty=kind == "live")
    make_display(kind, stream).note("complete: nothing to send")
    assert "complete: nothing to send" in stream.getvalue()
