"""Misspelt commands, options and values: the nearest name, and the usage of the right command."""

from pathlib import Path

import pytest

from orchestrator.cli import _parser
from orchestrator.commands import messages
from tests.cli.test_start_up import commands


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runn"], "orchestrator: error: unknown command 'runn'; did you mean 'run'?"),
        (["get", "recpe"], "get: error: unknown action 'recpe'; did you mean 'recipe'?"),
        (["run", "x", "--limt", "5"], "arguments: --limt; did you mean '--limit'?"),
        (["run", "x", "--limt=5"], "arguments: --limt=5; did you mean '--limit'?"),
        # These lack an argument as well, which argparse would report instead.
        (["run", "--limt=5"], "arguments: --limt=5; did you mean '--limit'?"),
        (["export", "x", "--too", "d"], "arguments: --too; did you mean '--to'?"),
        (["report", "x", "--format", "jsn"], "choice: 'jsn'; did you mean 'json'?"),
        (
            ["get", "weights", "x", "--yse"],
            "weights: error: unrecognized arguments: --yse; did you",
        ),
    ],
)
def test_the_nearest_name_is_suggested(command, arguments, said):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]


def test_what_is_like_nothing_gets_a_list_or_no_suggestion(command):
    assert "unknown command 'xyzzy' (choose from init, check, plan," in command("xyzzy")[2]
    code, _, err = command("run", "x", "--xyzzy", "-z", "more")
    assert code == 2
    assert err.endswith("orchestrator run: error: unrecognized arguments: --xyzzy -z more\n")
    assert err.startswith("usage: orchestrator run ")


def test_a_missing_argument_is_still_reported(command):
    assert "the following arguments are required: RECIPE" in command("run", "--limit", "5")[2]
    assert "required: RECIPE" in command("run", "--lim=5")[2]


@pytest.mark.parametrize("name", commands())
def test_each_command_is_suggested_for_a_typo_in_its_name(command, name):
    assert "did you mean " in command(*f"{name}{name[-1]}".split())[2]


def test_an_option_after_a_double_dash_is_no_option():
    assert _parser().parse_args(["run", "--", "--limt"]).recipe == "--limt"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("mine.yml", "mine.yaml"), ("mnie.yaml", "mine.yaml"), ("sub/mine.yml", "sub/mine.yaml")],
)
def test_a_recipe_that_lies_there_is_suggested(command, here, given, meant):
    (here / "sub").mkdir()
    for folder in (here, here / "sub"):
        (folder / "mine.yaml").touch()
    code, out, err = command("check", given)
    assert (code, out) == (2, "")
    assert f"{given}: no such recipe; did you mean {meant!r}?" in err


def test_a_recipe_of_the_project_is_suggested_where_none_lies_there(command):
    assert "did you mean 'pairwise_ranking'?" in command("check", "pairwise_rankin")[2]


def test_a_recipe_that_resembles_none_brings_no_list_of_all(command):
    err = command("check", "elsewhere/xyzzy.yaml")[2]
    assert (
        err
        == "elsewhere/xyzzy.yaml: no such recipe; list recipes with: orchestrator list recipes\n"
    )


def test_a_folder_without_a_run_hides_none_of_the_same_name(command, here):
    (here / "mine").mkdir()
    (here / "runs/mine").mkdir(parents=True)
    (here / "runs/mine/store.sqlite").touch()
    assert messages.run_path("mine") == Path("runs/mine")
    (here / "mine/store.sqlite").touch()
    assert messages.run_path("mine") == Path("mine")


@pytest.mark.parametrize(
    ("given", "meant"), [("gtae", "gate"), ("runs/gtae", "runs/gate"), ("old/firs", "old/first")]
)
@pytest.mark.parametrize("name", ["report", "status", "cite", "pause"])
def test_a_run_that_lies_there_is_suggested(command, here, name, given, meant):
    for folder in ("runs/gate", "old/first"):
        (here / folder).mkdir(parents=True)
        (here / folder / "store.sqlite").touch()
    code, out, err = command(name, given)
    assert (code, out) == (2, "")
    assert f"no run found at {given}; did you mean {meant!r}?" in err
