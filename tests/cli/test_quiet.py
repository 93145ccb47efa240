"""`--quiet`: results, warnings and errors remain; progress, notes and confirmations do not."""

import io
from types import SimpleNamespace

import pytest

from orchestrator.commands import recipes, servers
from orchestrator.report.live import progress
from orchestrator.report.text import is_quiet, quiet
from orchestrator.runner.session import control
from orchestrator.store import RunDirectory
from tests.cli.test_start_up import commands


@pytest.mark.parametrize("name", commands())
def test_every_command_takes_it(name):
    found = commands()[name]
    assert found.get_default("quiet") is False
    assert "--quiet" in found.format_help()


def test_notes_are_left_out(command, recipe):
    path = recipe(
        models={
            "a": {"server": "embedded", "weights": "no-one/nobody"},
            "b": {"server": "fake", "weights": "x"},
        },
        methods=[{"kind": "answers"}],
    )
    assert "not on this machine" in command("check", path)[2]
    assert command("check", "--quiet", path) == (0, "made.yaml: no faults\n", "")


def test_errors_are_not(command):
    code, out, err = command("check", "-q", "nowhere.yaml")
    assert (code, out) == (2, "")
    assert "no such recipe" in err


def test_progress_is_left_out_and_the_task_goes_on():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with quiet(wanted=True), progress("counting", 3, stream) as advance:
        advance(3)
    assert stream.getvalue() == ""
    assert not is_quiet()


@pytest.mark.slow
def test_a_quiet_run_prints_its_results_only(command, recipe):
    code, loud, err = command("run", recipe())
    assert code == 0
    assert "units" in err
    code, out, err = command("run", "-q", recipe())
    assert (code, err) == (0, "")
    assert out == loud


@pytest.mark.parametrize("is_quiet", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "recipe", "pairwise_ranking"),
        ("init", "mine.yaml"),
        ("new", "method", "brevity"),
        ("allow", "project"),
        ("pause", "made"),
        ("servers", "stop", "--all"),
    ],
    ids=" ".join,
)
def test_a_command_does_its_task_without_a_word(command, here, monkeypatch, arguments, is_quiet):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "configuration"))
    (here / "project").mkdir()
    (here / "runs" / "made").mkdir(parents=True)
    monkeypatch.setattr(recipes, "USUAL", {})
    monkeypatch.setattr(RunDirectory, "open", lambda path: path)
    monkeypatch.setattr(control, "tell", lambda *_: "paused")
    monkeypatch.setattr(servers, "ServerRegistry", Registry)
    code, out, err = command(*arguments, *(["-q"] if is_quiet else []))
    assert (code, out == "", err) == (0, is_quiet, "")


class Registry:
    """One kept server."""

    def all(self):
        return [SimpleNamespace(name="kept", job="", host="", watchdog=0)]

    def stop(self, kept):
        assert kept.name == "kept"


@pytest.mark.slow
def test_nor_does_one_that_writes_files_of_a_run_say_so(command, recipe):
    assert command("run", recipe(), "-q")[0] == 0
    for arguments in (
        ("export", "made", "--to", "frames"),
        ("export", "made", "--figures", "figures"),
        ("report", "made", "--html", "report.html"),
        ("runs", "repair", "made"),
        ("runs", "gc", "made", "--drop"),
    ):
        assert command(*arguments, "-q") == (0, "", "")
        _, out, err = command(*arguments)
        assert out + err


def test_faults_are_said_all_the_same(command, here):
    (here / "pairwise_ranking.yaml").touch()
    code, out, err = command("get", "recipe", "pairwise_ranking", "-q")
    assert (code, out) == (2, "")
    assert "already exists" in err
