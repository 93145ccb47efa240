"""Streams whose reader is gone end nothing; a full disk behind one is an error."""

import errno
import io

import pytest
from rich.text import Text

from orchestrator.report.page import print_to
from orchestrator.report.text import write_to


class Broken(io.TextIOWrapper):
    """A stream that can't be written to."""

    def __init__(self, number: int, *, tty: bool) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)
        self._number, self._tty = number, tty

    def isatty(self) -> bool:
        return self._tty

    def write(self, text: str) -> int:
        raise OSError(self._number, "broken")


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_reader_that_is_gone_is_told_and_no_error(number, tty):
    assert write_to(Broken(number, tty=tty), "text") is False
    assert print_to(Broken(number, tty=tty), Text("text")) is False


@pytest.mark.parametrize("tty", [True, False])
def test_a_disk_that_is_full_is_an_error(tty):
    with pytest.raises(OSError, match="broken"):
        write_to(Broken(errno.ENOSPC, tty=tty), "text")
    with pytest.raises(OSError, match="broken"):
        print_to(Broken(errno.ENOSPC, tty=tty), Text("text"))


def test_a_stream_that_was_closed_is_no_error():
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    stream.close()
    assert write_to(stream, "text") is False
    assert print_to(stream, Text("text")) is False
