"""Reading back the log of a server."""

import pytest

from launch._spec import ServerSpec, environment
from launch._supervisor import ServerLog, first_error

KEY_LENGTH = 40
KEY = "k" * KEY_LENGTH


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "servers" / "m.log"
    path.parent.mkdir()
    path.write_text("ValueError: of an earlier start\n")
    return ServerLog(path, (KEY, "hf_secret"))


def write(log, text):
    with log.path.open("a") as file:
        file.write(text)


def test_errors_of_earlier_starts_and_before_it_was_ready_are_no_reason_why_it_ended(log):
    write(log, "ImportError: no fast kernels, going on without\nready\n")
    assert first_error(log.lines()).startswith("ImportError")
    log.mark()
    write(log, "RuntimeError: it ends\n")
    assert first_error(log.lines()) == "RuntimeError: it ends"
    assert next(log.lines(whole=True)).startswith("ImportError")
    assert "earlier" not in log.text()


def test_no_secret_is_read_back(log):
    write(log, f"ValueError: key {KEY} and token hf_secret\n")
    assert first_error(log.lines()) == "ValueError: key *** and token ***"
    assert log.text() == "ValueError: key *** and token ***\n"


@pytest.mark.parametrize("place", range(KEY_LENGTH + 3))
def test_no_part_of_a_secret_is_read_back_where_the_last_64_kb_begin_in_it(log, place):
    write(log, f"key {KEY}{'.' * (64 * 1024 - place)}")
    assert "k" not in log.text()
    assert log.text().endswith("." * 60_000)


@pytest.mark.parametrize("place", range(KEY_LENGTH + 3))
def test_no_part_of_a_secret_is_read_back_where_a_long_line_is_cut_in_it(log, place):
    write(log, f"{'.' * (64 * 1024 - place)}{KEY}{'.' * 70_000}\nValueError: x\n")
    log.mark()
    said = [*log.lines(whole=True)]
    assert "k" not in "".join(said)
    assert "".join(said).count("***") == 1
    assert said[-1] == "ValueError: x\n"


def test_a_secret_that_begins_like_another_is_not_shown_in_part(tmp_path):
    log = ServerLog(tmp_path / "m.log", ("hf_abc", "hf_abcdef"))
    write(log, "hf_abcdef hf_abc\n")
    assert log.text() == "*** ***\n"


def test_a_log_without_line_ends_is_read_in_parts(log):
    write(log, "ERROR " + "x" * 300_000)
    assert max(map(len, log.lines())) < 100_000


def test_a_log_that_is_gone_is_empty(log):
    log.path.unlink()
    assert list(log.lines()) == []
    assert log.text() == ""


def test_what_is_called_a_secret_is_one():
    env = {"HF_TOKEN": "hf_secret", "DB_PASSWORD": "hunter22", "PATH": "/bin", "X_TOKEN": "1"}
    _, hidden = environment({}, ServerSpec(kind="k", names=("m",), argv=tuple, env=env), KEY)
    assert set(hidden) == {KEY, "hf_secret", "hunter22"}
