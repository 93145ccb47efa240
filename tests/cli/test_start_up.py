"""Imports of a command, by the modules that are loaded; their time is in benchmarks/."""

import argparse
import functools
import json
import pkgutil
import subprocess
import sys

import pytest

from orchestrator import cli

HEAVY = ("aiohttp", "numpy", "openai", "polars", "pydantic", "rich", "scipy", "sqlite3", "yaml")
CODE = """
import json, linecache, sys
from orchestrator.cli import main
try:
    main(json.loads(sys.argv[1]))
except SystemExit:
    pass
print(json.dumps([sorted(sys.modules), sorted(linecache.cache)]), file=sys.stderr)
"""


@functools.cache
def after(*arguments):
    """The modules that are in memory after a command, and the files whose source was read."""
    ended = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    modules, sources = json.loads(ended.stderr.splitlines()[-1])
    return set(modules), sources


def loaded(*arguments):
    """The packages that are in memory after a command."""
    return {name.partition(".")[0] for name in after(*arguments)[0]}


def commands(parser=None):
    """The parser of each command and action, by its words."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in (parser or cli._parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                inner = {f"{name} {words}": one for words, one in commands(command).items()}
                found |= inner or {name: command}
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["rum"]])
def test_what_runs_nothing_loads_nothing_that_takes_long(arguments):
    assert loaded(*arguments).isdisjoint(HEAVY)


def test_a_check_loads_nothing_that_draws_fetches_or_computes_tables():
    modules, _ = after("check", "pairwise_ranking")
    assert modules.isdisjoint(
        {"aiohttp", "openai", "polars", "scipy", "torch", "rich.console", "rich.text"}
    )
    assert modules.isdisjoint({"http.client", "urllib.request", "orchestrator.dataset.files"})


def test_a_list_of_runs_loads_no_html_report():
    modules, _ = after("runs")
    assert "orchestrator.runner.results.runs" in modules
    assert not [name for name in modules if name.startswith("orchestrator.report.html")]


def test_the_state_of_runs_needs_no_frames_and_no_results():
    modules, _ = after("runs")
    assert modules.isdisjoint({"polars", "orchestrator.interface.result", "scipy.optimize"})


def test_before_the_first_request_a_run_has_imported_nothing_of_its_results(tmp_path):
    """Its successor waits for these imports too, where a job hands a run on to another one."""
    code = """
import logging, sys
from orchestrator.cli import main
class Imported(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "sending begins":
            print("before", *sys.modules)
logging.getLogger("orchestrator").addHandler(Imported())
main(sys.argv[1:])
print("after", *sys.modules)
"""
    recipe = tmp_path / "r.json"
    made = {
        "name": "made",
        "models": {"a": {"server": "fake", "weights": "fake:0.3"}},
        "dataset": {"kind": "demo", "n": 1},
        "methods": [{"kind": "answers"}],
    }
    recipe.write_text(json.dumps(made))
    words = ["run", str(recipe), "--run-dir", str(tmp_path / "run"), "--display", "none"]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words, "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, *_, last = [
        set(line.split()) for line in ended.stdout.splitlines() if line[:6] in ("before", "after ")
    ]
    late = {"polars", "orchestrator.interface.result", "orchestrator.report.rankings"}
    assert first.isdisjoint(late)
    assert late <= last


def test_a_check_reads_no_descriptions_of_settings_from_their_source():
    assert after("check", "pairwise_ranking")[1] == []


def test_the_words_for_heavy_packages_are_those_that_a_check_loads():
    assert {"pydantic", "yaml"} <= loaded("check", "pairwise_ranking")


def test_a_command_ends_without_freeing_its_objects_but_runs_what_was_registered(tmp_path):
    code = """
import atexit, sys
from orchestrator.cli import entry
class Noisy:
    def __del__(self):
        print("freed")
noisy = Noisy()
sys.argv = ["orchestrator", "runs", "list", sys.argv[1], "--json"]
try:
    entry()
finally:
    atexit.register(print, "registered after")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["[]", "registered after"]


def test_an_interrupt_while_the_first_is_told_is_no_traceback():
    code = """
from orchestrator import cli

def main(arguments):
    raise KeyboardInterrupt

cli.main = main
cli.entry()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_a_lack_of_memory_is_no_traceback(monkeypatch, command):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr("orchestrator.plugins.kinds", fails)
    code, _, err = command("list", "methods")
    assert (code, "out of memory" in err, "Traceback" in err) == (1, True, False)


# Loaded by `check`, from the first to nearly the last.
LOADED = (
    "orchestrator.cli", "argparse", "orchestrator.errors", "orchestrator.commands.parser",
    "orchestrator.commands.guard", "orchestrator.report.text", "orchestrator.runner.logs",
    "pydantic", "yaml", "orchestrator.recipe.load", "orchestrator.methods.pairwise_ranking",
)  # fmt: skip


@pytest.mark.parametrize("name", LOADED)
def test_an_interrupt_while_modules_load_is_no_traceback(name):
    code = """
import os, signal, sys
wanted = sys.argv.pop(1)
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from orchestrator.__main__ import entry
entry()
"""
    words = [sys.executable, "-c", code, name, "check", "pairwise_ranking"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (130, False), ended.stderr


@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_function(name):
    assert callable(
        pkgutil.resolve_name(f"orchestrator.commands.{commands()[name].get_default('handler')}")
    )


@pytest.mark.slow
def test_a_shard_of_several_imports_nothing_of_results(recipe, monkeypatch):
    """The call that puts the shards together shows them."""
    path = recipe(dataset={"kind": "demo", "n": 4})
    monkeypatch.setenv("ORCHESTRATOR_HANDS_ON", "shard")
    modules, _ = after("run", path, "-q", "--shard", "1/2")
    assert "orchestrator.runner.session.session" in modules
    assert modules.isdisjoint({
        "polars", "orchestrator.interface.result", "orchestrator.runner.results.frames",
        "orchestrator.interface.gating", "orchestrator.report.rankings",
    })  # fmt: skip
