"""A program that serves until a signal ends well from the moment when it says that it serves."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

SAID_BY = {
    "press Ctrl-C": ("orchestrator", "view", "runs", "--port", "0"),
    "ready": ("launch._fake_server", "--model", "m"),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("said", SAID_BY)
def test_a_signal_at_the_first_word_is_obeyed(said, number, tmp_path):
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", *SAID_BY[said]]
    path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, "ORCHESTRATOR_STATE": str(tmp_path / "state")}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as stream:
        while said not in (line := stream.readline()):
            assert line, "it ended before it served"
        process.send_signal(number)
        rest = stream.read()
    assert process.wait(60) == 0, rest
    assert not any((tmp_path / "state" / "view").glob("*"))
