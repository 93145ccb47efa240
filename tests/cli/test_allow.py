"""Permission to run code beside a recipe, as a person gives it."""

import json
import re
import shlex
import shutil

import pytest

from orchestrator.disk.paths import distrust
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from orchestrator.interface.loading import read
from orchestrator.view.library import Run
from tests.cli.test_broken_plugins import METHOD

SUMMARY = """
from orchestrator.contracts.method import Summary
from orchestrator.tables import Table
class Told(Summary):
    def summarise(self, context):
        return [Table('own', 'A table of mine', (), (), notes=('mine says hello',))]
"""
COMMANDS = (
    "run",
    "plan",
    "check",
    "report",
    "export",
    "status",
    "view",
    "runs gc",
    "servers probe",
)


@pytest.fixture
def project(here, recipe, monkeypatch):
    """A folder with a recipe and the method that it names by its path."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "configuration"))
    monkeypatch.setenv("COLUMNS", "1000")
    folder = here / "my [project]"
    folder.mkdir()
    (folder / "my method.py").write_text(f"{SUMMARY}{METHOD}summary = Told\n")
    written = recipe(
        models={"a": {"server": "fake", "weights": "a:0.5"}},
        methods=[{"kind": "./my method.py", "answer": {"max_tokens": 4}}],
    )
    shutil.move(here / written, folder / "r.yaml")
    return folder


def test_every_command_takes_the_permission_and_says_how_to_give_it_once(command):
    for name in COMMANDS:
        said = " ".join(command(*name.split(), "--help")[1].split()).rpartition("--allow-code ")[2]
        assert "(permanently for a folder: orchestrator allow)" in said[:140], name


def test_a_folder_is_allowed_once_and_the_permission_taken_back(command, project, here, caplog):
    path = f"{project.name}/r.yaml"
    for name in ("check", "plan", "run"):
        code, _, err = command(name, path)
        assert code == EXIT_USAGE
        assert f"`orchestrator allow '{project}'`" in "".join(err.splitlines())
    assert command("allow", str(project))[0] == EXIT_COMPLETE
    assert command("allow", "--list")[1] == f"{project}\n"
    for name in ("check", "plan"):
        assert command(name, path)[0] == EXIT_COMPLETE
    run_dir = f"{project.name}/runs/made"
    code, out, err = command("run", path, "--display", "none", "--run-dir", run_dir)
    assert code == EXIT_COMPLETE, err
    assert "mine says hello" in out
    assert "mine says hello" in command("report", run_dir)[1]
    assert command("runs", "gc", run_dir)[0] == EXIT_COMPLETE
    assert command("allow", str(project), "--revoke")[0] == EXIT_COMPLETE
    assert command("allow", "--list")[1] == ""
    code, out, _ = command("report", run_dir)
    assert code == EXIT_COMPLETE
    assert "mine says hello" not in out
    page = here / "page.html"
    reports = [command("report", run_dir, "--format", form)[1] for form in ("json", "markdown")]
    assert command("report", run_dir, "--html", str(page))[0] == EXIT_COMPLETE
    said = "skippedthesummaryofmy_method"
    told = ["".join(report.replace("\\", "").split()).count(said) for report in (out, *reports)]
    # JSON has it as a note, and for its table.
    assert told == [1, 2, 1]
    assert "".join(page.read_text(encoding="utf-8").split()).count(said) == 1
    assert caplog.text.count("skipped the summary of my_method") == 1
    words = shlex.split(re.findall("`(orchestrator allow .*?)`", caplog.text)[-1])
    assert words == ["orchestrator", "allow", str(here / run_dir)]
    assert command("check", path)[0] == EXIT_USAGE
    shown = command("report", run_dir, "--allow-code")[1]
    assert "mine says hello" in shown
    assert "--allow-code --html" in " ".join(shown.split())


def test_the_advice_can_be_followed_as_it_is_printed(command, project):
    err = command("check", f"{project.name}/r.yaml")[2]
    (said,) = re.findall("`orchestrator (allow .*?)`", "".join(err.splitlines()))
    assert command(*shlex.split(said))[0] == EXIT_COMPLETE
    assert command("check", f"{project.name}/r.yaml")[0] == EXIT_COMPLETE


def test_a_folder_that_can_not_be_allowed_is_not_advised(command, project):
    project.chmod(0o777)
    err = " ".join(command("check", f"{project.name}/r.yaml")[2].split())
    assert "allow it with --allow-code, if you trust it" in err
    assert "orchestrator allow" not in err


def test_no_code_is_advised_for_a_run_of_another_user(command, project, here, caplog):
    run_dir = f"{project.name}/runs/made"
    path = f"{project.name}/r.yaml"
    code, _, err = command("run", path, "--display", "none", "--run-dir", run_dir, "--allow-code")
    assert code == EXIT_COMPLETE, err
    distrust(here / run_dir)
    (note,) = (
        note
        for table in read(here / run_dir, apart=here / "apart").tables
        for note in table.notes
        if "skipped" in note
    )
    assert "no code is imported for a run of another user" in note
    assert "copy the run" in note
    for said in (note, caplog.text):
        assert "--allow-code" not in said
        assert "orchestrator allow" not in said


def test_programs_of_a_recipe_need_the_same_permission(command, project, recipe, here):
    server = {"server": {"kind": "vllm", "command": "./mine"}, "weights": "hub/name"}
    written = recipe(models={"a": server}, methods=[{"kind": "answers"}])
    shutil.move(here / written, project / "program.yaml")
    path = f"{project.name}/program.yaml"
    assert "mine' is a program of the recipe's choice" in command("check", path)[2]
    command("allow", str(project))
    assert "is a program" not in command("check", path)[2]


def test_the_options_of_allow_exclude_each_other(command, project):
    assert command("allow", "--list", "--revoke")[0] == EXIT_USAGE
    assert command("allow", "--list", ".")[0] == EXIT_USAGE
    assert command("allow", "nowhere")[0] == EXIT_USAGE
    assert command("allow", "--revoke")[0] == EXIT_USAGE


def test_a_run_finds_the_file_from_any_folder_and_lives_without_it(
    command, project, here, monkeypatch, caplog
):
    path = f"{project.name}/r.yaml"
    assert command("run", path, "--display", "none", "--allow-code")[0] == EXIT_COMPLETE
    run = str(here / "runs" / "made")
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert "mine says hello" in command("report", run, "--allow-code")[1]
    assert "nothing to delete" in command("runs", "gc", run, "--allow-code")[1]
    (project / "my method.py").unlink()
    assert command("report", run, "--allow-code", "--html", "page.html")[0] == EXIT_COMPLETE
    assert "no such file" in caplog.text
    assert "can still be read and exported" in caplog.text
    assert command("export", run, "--allow-code", "--to", "out", "--format", "csv")[0] == 0
    assert (elsewhere / "out" / "answers.csv").read_text().count("my_method") == 6


def test_an_edited_method_makes_new_rows_of_the_stored_answers(command, project):
    def run():
        code, _, err = command(
            "run", f"{project.name}/r.yaml", "--display", "json", "--allow-code", "--format", "json"
        )
        assert code == EXIT_COMPLETE, err
        return [json.loads(line) for line in err.splitlines()]

    def ended(said):
        return next(one for one in reversed(said) if "requests_sent" in str(one))

    first, again = run(), run()
    method = project / "my method.py"
    assert "complete: nothing to send" in str(again)
    method.write_text(method.read_text() + "\n# Another reading.\n")
    edited = run()
    assert "complete: nothing to send" not in str(edited)
    assert first != edited
    assert ended(edited)


def test_a_moved_folder_goes_on_with_its_run(command, project, here):
    command("run", f"{project.name}/r.yaml", "--display", "none", "--allow-code")
    project.rename(here / "moved")
    code, _, err = command("run", "moved/r.yaml", "--display", "plain", "--allow-code")
    assert code == EXIT_COMPLETE
    assert "complete: nothing to send" in err


def test_the_viewer_takes_either_permission(command, project, here):
    run_dir = project / "runs" / "made"
    path = f"{project.name}/r.yaml"
    command("run", path, "--display", "none", "--run-dir", str(run_dir), "--allow-code")

    def shown(number, *, allow_code):
        run = Run(run_dir, here / f"side{number}", allow_code=allow_code)
        return "mine says hello" in str(run.snapshot().overview)

    assert not shown(1, allow_code=False)
    assert shown(2, allow_code=True)
    command("allow", str(project))
    assert shown(3, allow_code=False)
