"""`orchestrator compare`: what the function says, in three forms."""

import orchestrator
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE


def test_the_command_says_what_the_function_says(command, recipe):
    for name, n in (("a", "6"), ("b", "4")):
        arguments = ("--run-dir", f"runs/{name}", "--limit", n, "--display", "none")
        assert command("run", str(recipe()), *arguments)[0] == EXIT_COMPLETE
    code, out, err = command("compare", "a", "b")
    assert code == EXIT_COMPLETE
    assert "4 items in common; a has 6, b has 4." in out
    assert "b minus a" in out
    assert err == ""
    found = orchestrator.compare("runs/a", "runs/b")
    assert command("compare", "a", "runs/b", "--format", "json")[1] == found.to_json()
    assert command("compare", "a", "b", "--format", "markdown")[1] == found.to_markdown()
    code, out, err = command("compare", "a", "b", "--html", "compared/page.html")
    assert (code, out) == (EXIT_COMPLETE, "")
    assert "compared/page.html" in err
    for by in ("run", "model", "judge", "method"):
        found = orchestrator.compare("runs/a", "runs/b", by=by)
        assert found.by == by
        assert command("compare", "a", "b", "--by", by, "--format", "json")[1] == found.to_json()


def test_a_run_that_is_not_there_is_named(command):
    code, _, err = command("compare", "a", "b")
    assert code == EXIT_USAGE
    assert "no run found at a" in err
