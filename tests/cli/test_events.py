"""`--display json`: a program that reads stderr meets JSON lines and nothing else."""

import json

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL, EXIT_USAGE


def events(err):
    return [json.loads(line) for line in err.splitlines()]


def of(found, kind):
    return [event for event in found if event["event"] == kind]


def test_a_complete_run_ends_with_json_and_names_its_files(command, recipe):
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    code, _, err = command("run", path, "--display", "json", "--html", "page.html")
    assert code == EXIT_COMPLETE
    found = events(err)
    assert of(found, "stop")
    assert found[-1] == {"event": "file", "path": "page.html"}
    assert events(command("run", path, "--display", "json")[2])


def test_a_bound_that_stops_a_run_is_a_note_at_the_end(command, recipe):
    code, _, err = command("run", recipe(), "--display", "json", "--set", "budget.requests=5")
    assert code == EXIT_PARTIAL
    found = events(err)
    assert "budget.requests: 5 of 5 sent" in found[-1]["text"]
    assert of(found, "progress")[-1]["requests_sent"] == 5


@pytest.mark.parametrize(
    ("change", "n_faults"), [({"modles": {}, "seed": "x"}, 2), ({"dataset": {"path": "no.csv"}}, 1)]
)
def test_what_is_wrong_is_an_error_with_its_places(command, recipe, change, n_faults):
    code, _, err = command("run", recipe(**change), "--display", "json")
    assert code == EXIT_USAGE
    (error,) = events(err)
    assert error["event"] == "error"
    assert error["text"]
    assert [fault["file"] for fault in error["faults"]] == ["made.yaml"] * n_faults


@pytest.mark.parametrize(
    "arguments",
    [("--display", "json", "--limit", "x"), ("--display=json", "--lmit", "3"), ("--display=json",)],
)
def test_a_wrong_command_is_json_too(command, recipe, arguments):
    given = () if arguments == ("--display=json",) else (recipe(),)
    code, out, err = command("run", *given, *arguments)
    assert (code, out) == (EXIT_USAGE, "")
    (error,) = events(err)
    assert error["event"] == "error"
    assert error["text"].startswith("orchestrator run: ")
