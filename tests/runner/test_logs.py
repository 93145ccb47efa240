"""The log of a run: lines of JSON while it runs, nothing before and after."""

import json
import logging

import pytest

from orchestrator.report.lines import Display
from orchestrator.runner.logs import RepeatedEvents, downloads_said, logged

OWN = logging.getLogger("orchestrator.runner.somewhere")


class Notes(Display):
    """A display that keeps its notes alone."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def write(path, display):
    with logged(path, display):
        OWN.debug("too small")
        OWN.info("phase", extra={"n": 3})
        OWN.warning("server %s changed", "m")
        try:
            _ = dict[str, int]()["what the user asked"]
        except KeyError:
            OWN.exception("a fault")
    OWN.warning("too late")


def test_lines_hold_time_level_words_and_fields(tmp_path):
    write(tmp_path / "log.jsonl", Notes())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["message"] for line in lines] == ["phase", "server m changed", "a fault"]
    assert lines[0]["n"] == 3
    assert lines[1]["level"] == "WARNING"
    assert lines[2]["error"] == "KeyError"


def test_words_of_an_exception_stay_out(tmp_path):
    write(tmp_path / "log.jsonl", Notes())
    assert "what the user asked" not in (tmp_path / "log.jsonl").read_text()


def test_warnings_are_shown_as_notes(tmp_path):
    display = Notes()
    write(tmp_path / "log.jsonl", display)
    assert display.notes[0] == "server m changed"
    assert "phase" not in display.notes


def test_loggers_are_afterwards_as_they_were(tmp_path):
    names = ("orchestrator", "backends", "launch", "asyncio")
    before = [
        (logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names
    ]
    write(tmp_path / "log.jsonl", Notes())
    after = [
        (logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names
    ]
    assert after == before


def test_a_log_that_can_t_be_written_is_said_and_ends_nothing(tmp_path):
    display = Notes()
    write(tmp_path / "missing" / "log.jsonl", display)
    assert "no log is written" in display.notes[0]


@pytest.mark.parametrize(("n", "lines"), [(1, 1), (9, 1), (10, 2), (1000, 4)])
def test_what_happens_often_gets_few_lines(n, lines):
    often = RepeatedEvents()
    assert sum(bool(often.count("m", "rate_limited")) for _ in range(n)) == lines


def test_downloads_are_said_inside_the_block_and_not_after_it():
    said: list[str] = []
    logger = logging.getLogger("orchestrator.datasets._download")
    with downloads_said(said.append):
        logger.info("downloading %s", "x")
    logger.info("downloading %s", "y")
    assert said == ["downloading x"]


def test_a_conversion_is_said_once_by_the_command_or_by_the_display_of_its_run(tmp_path):
    said: list[str] = []
    display = Notes()
    logger = logging.getLogger("launch._converted")
    with downloads_said(said.append):
        logger.info("dequantising %s", "x", extra={"note": True})
        with logged(tmp_path / "log.jsonl", display):
            logger.info("dequantising %s", "y", extra={"note": True})
    assert (said, display.notes) == (["dequantising x"], ["dequantising y"])
