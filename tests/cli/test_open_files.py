"""A low limit of open files is said, whatever breaks by it."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from orchestrator import cli
from orchestrator.commands import plan
from orchestrator.disk.files import few_files


def test_a_command_that_runs_out_of_files_says_the_limit(monkeypatch, capsys):
    def full(options):
        raise OSError(errno.EMFILE, "Too many open files", "x")

    monkeypatch.setattr(plan, "plan", full)
    assert cli.main(["plan", "r.yaml"]) == 1
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = capsys.readouterr().err
    assert f"may open {soft} files at a time" in said.replace("\n", " ")
    assert "ulimit -n" in said


@pytest.mark.parametrize("limit", [64, 512])
def test_a_run_with_few_files_warns_once(limit):
    code = (
        "import logging; logging.basicConfig(); from orchestrator.runner.servers import machine; "
        "machine.raise_file_limit()"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -n {limit}; exec {sys.executable} -c '{code}'"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ,
    )
    assert ("may open 64 files at a time" in done.stderr) == (limit == 64)
    assert few_files()


STREAMS = ["", ">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", STREAMS)
def test_streams_that_are_closed_do_no_harm(closed, tmp_path):
    command = f"exec {sys.executable} -m orchestrator list methods {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
