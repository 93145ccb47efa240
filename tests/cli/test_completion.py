"""Completion in the shell, asked as a shell asks, and by a real bash."""

import os
import shutil
import subprocess
import sys

import pytest

from orchestrator.recipe.load import available

ENTRY = "from orchestrator.cli import entry; entry()"


@pytest.fixture
def completed(here):
    """The completions of a line that ends where the cursor is."""

    def ask(line):
        answer = here / "answer"
        surroundings = {
            **os.environ,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line.encode())),
            "COMP_TYPE": "9",
        }
        # argcomplete writes its own errors to descriptor 9 if there is one.
        ended = subprocess.run(
            [sys.executable, "-c", ENTRY], env=surroundings, capture_output=True, text=True
        )
        assert ended.stdout == ""
        found = set(answer.read_text().split("\n")) - {""}
        answer.unlink()
        return found

    return ask


def test_commands_and_options_are_completed(completed):
    assert completed("orchestrator re") >= {"report", "resume"}
    assert completed("orchestrator runs ") >= {"list", "merge", "repair", "gc"}
    assert completed("orchestrator servers st") == {"start", "stop"}
    assert completed("orchestrator list me") == {"methods"}
    assert completed("orchestrator --completion ") >= {"bash", "zsh", "fish"}
    assert completed("orchestrator run x --subs") == {"--subset"}
    assert completed("orchestrator run x --format ") == {"table", "markdown", "json"}


def test_recipes_are_completed_by_name_and_path(completed, here):
    (here / "pairwise_mine.yaml").touch()
    names = {path.stem for path in available() if path.stem.startswith("pairwise")}
    assert completed("orchestrator run pairwise") == {*names, "pairwise_mine.yaml"}


def test_runs_are_completed_unless_a_shell_could_read_code_in_their_names(completed, here):
    for name in ("first.2", "fish-and_chips", "f$(touch x)", "f;x", "empty"):
        (here / "runs" / name).mkdir(parents=True)
        if name != "empty":
            (here / "runs" / name / "store.sqlite").touch()
    assert completed("orchestrator report f") == {"first.2", "fish-and_chips"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_code_that_it_can_read(command, shell):
    code, out, err = command("--completion", shell)
    assert (code, err) == (0, "")
    assert "orchestrator" in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)


def test_bash_completes_after_the_line_of_the_docs(command, here):
    code = command("--completion", "bash")[1]
    (here / "code").write_text(code)
    said = subprocess.run(
        ["bash", "-c", "source ./code; complete -p orchestrator"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_python_argcomplete orchestrator" in said.stdout


def test_another_shell_is_refused(command):
    code, _, err = command("--completion", "fsh")
    assert code == 2
    assert "did you mean 'fish'?" in err
