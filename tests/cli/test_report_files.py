import os
import threading
from pathlib import Path

import pytest

import orchestrator
from orchestrator.disk import files
from orchestrator.errors import EXIT_COMPLETE
from orchestrator.interface.exporting import material
from orchestrator.report.html.basis import requests


@pytest.fixture
def run(command, recipe):
    code, _, said = command("run", recipe(), "--limit", "2", "--display", "none", "--html")
    assert code == 0, said
    return "made"


def test_a_run_writes_its_report_beside_itself_where_asked(run, here):
    text = (here / "runs" / run / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "strong" in text


def test_a_report_goes_through_a_pipe_that_stays_one(run, command, here):
    os.mkfifo(here / "pipe")
    reader = os.open(here / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    got = []

    def read():
        os.set_blocking(reader, True)
        while piece := os.read(reader, 1 << 16):
            got.append(piece)

    thread = threading.Thread(target=read)
    # Held open, so that reading begins and ends with the report.
    writer = os.open(here / "pipe", os.O_WRONLY)
    thread.start()
    code, _, said = command("report", run, "--html", "pipe")
    os.close(writer)
    thread.join()
    os.close(reader)
    assert code == 0, said
    assert b"".join(got).startswith(b"<!doctype html>")
    assert (here / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["null", "stdout", "fd/1", "full"])
def test_devices_are_never_replaced(name):
    """As root, a file in the place of /dev/null breaks the machine."""
    assert files.is_stream(Path("/dev", name))
    with pytest.raises(OSError, match="is not replaced"), files.renaming(Path("/dev", name)):
        raise AssertionError("a name beside a device was given")


def test_a_report_goes_where_it_is_wanted_and_says_so(run, command, here):
    code, out, said = command("report", run, "--html", "there/it.html")
    assert (code, out) == (0, "")
    assert "there/it.html" in said
    assert (here / "there" / "it.html").is_file()


def test_an_option_that_is_gone_names_the_one_that_stays(command):
    code, _, said = command("report", "made", "--charts", "charts")
    assert code == 2
    assert "orchestrator export RUN --figures DIR" in said


def test_a_report_that_can_not_be_written_is_refused(run, command, here):
    (here / "taken").write_text("", encoding="utf-8")
    code, _, said = command("report", run, "--html", "taken/it.html")
    assert code == 2
    assert "taken/it.html cannot be written" in said


def test_a_call_that_sends_nothing_keeps_what_the_last_one_counted(command, recipe):
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    assert command("run", path, "--display", "none")[0] == EXIT_COMPLETE
    counted = requests(material(orchestrator.load("runs/made")))
    assert counted is not None
    assert sum(int(str(row[1])) for row in counted.rows) == 18
    for _ in range(2):
        assert command("run", path, "--display", "none")[0] == EXIT_COMPLETE
        assert requests(material(orchestrator.load("runs/made"))) == counted
    # Found in the store, nothing is sent for rows that are made anew.
    more = recipe(
        methods=[
            {"kind": "answers", "answer": {"max_tokens": 4}},
            {"kind": "answers", "name": "again", "answer": {"max_tokens": 4}},
        ]
    )
    assert command("run", more, "--display", "none")[0] == EXIT_COMPLETE
    assert requests(material(orchestrator.load("runs/made"))) == counted
