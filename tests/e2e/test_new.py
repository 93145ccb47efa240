"""`orchestrator new` writes files that work as they are, also where only the wheel is installed."""

import json
import os
import site
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from tests.view.pages import served

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("method", "dataset", "backend")


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for family in FAMILIES:
        assert main(["new", family, f"my_{family}"]) == EXIT_COMPLETE
    return tmp_path


def called(*command: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*map(str, command)], cwd=folder, env={**environment, **variables},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def test_three_files_are_written_and_none_is_overwritten(written, capsys):
    names = {path.name for path in written.iterdir()}
    assert {"my_method.py", "test_my_method.py", "my_method.yaml"} <= names
    (written / "my_method.yaml").unlink()
    (written / "my_method.py").write_text("mine")
    assert main(["new", "method", "my_method"]) == EXIT_USAGE
    assert "nothing was written" in capsys.readouterr().err
    assert (written / "my_method.py").read_text() == "mine"
    assert not (written / "my_method.yaml").exists()


@pytest.mark.parametrize("name", ["my-method", "Mine", "json", "class", "test_x", "_x", "a b"])
def test_a_name_that_can_be_no_module_is_refused(written, name, capsys):
    assert main(["new", "method", name]) == EXIT_USAGE
    assert "such as my_method" in (said := capsys.readouterr().err) or "another name" in said


@pytest.mark.parametrize("family", FAMILIES)
def test_the_recipe_has_no_faults_and_is_planned(written, family, capsys):
    recipe = f"my_{family}.yaml"
    assert main(["check", recipe]) == EXIT_USAGE
    assert "--allow-code" in capsys.readouterr().err
    assert main(["check", recipe, "--allow-code"]) == EXIT_COMPLETE
    assert main(["plan", recipe, "--allow-code"]) == EXIT_COMPLETE


def test_a_new_back_end_runs_without_a_server(written, capsys):
    arguments = ["run", "my_backend.yaml", "--allow-code", "--display", "none"]
    assert main(arguments) == EXIT_COMPLETE, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_linter_type_checker_and_tests_pass(written):
    modules = sorted(str(path) for path in written.glob("*.py"))
    tool = (sys.executable, "-m")
    for command in (
        (*tool, "ruff", "check", "--isolated", "--select", "E,F,I,UP,B", "."),
        (*tool, "ruff", "format", "--isolated", "--check", "."),
        (*tool, "mypy", "--strict", *modules),
        (*tool, "pytest", "-q", "-p", "no:cacheprovider", "."),
    ):
        ended = called(*command, folder=written)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel in an environment of its own, with the dependencies of this one; its scripts."""
    place = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place)
    ended = called(*build, folder=ROOT)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = place.glob("*.whl")
    environment = place / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    ended = called(
        python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, folder=place
    )
    assert ended.returncode == 0, ended.stderr
    # The dependencies by their folder: a .pth is not read in it, so this checkout stays out.
    purelib = sysconfig.get_path("purelib", vars={"base": str(environment)})
    folders = "\n".join(site.getsitepackages())
    Path(purelib, "dependencies.pth").write_text(folders, encoding="utf-8")
    return environment / "bin"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.models
def test_a_method_outside_the_checkout_where_the_wheel_is_installed(installed, tmp_path):
    orchestrator = installed / "orchestrator"
    here = tmp_path / "a folder [of mine]"
    (here / "backends").mkdir(parents=True)
    (here / "backends" / "__init__.py").write_text("raise SystemExit('of the user')")
    configuration = str(tmp_path / "configuration")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return called(orchestrator, *arguments, folder=here, XDG_CONFIG_HOME=configuration)

    where = called(
        installed / "python", "-c", "import orchestrator; print(orchestrator.__file__)", folder=here
    )
    assert Path(where.stdout.strip()).is_relative_to(installed.parent)
    assert run("new", "method", "brevity").returncode == EXIT_COMPLETE
    for command in ("check", "plan", "run"):
        refused = run(command, "brevity.yaml")
        assert refused.returncode == EXIT_USAGE
        assert "orchestrator allow" in " ".join(refused.stderr.split())
    for options in (("check",), ("plan",), ("run", "--display", "none")):
        ended = run(*options, "brevity.yaml", "--allow-code")
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
    skipped = "skipped the summary of brevity"
    for arguments in (("report", "brevity"), ("report", "brevity", "--html", "page.html")):
        without = run(*arguments)
        assert without.returncode == EXIT_COMPLETE, without.stderr
        assert (without.stdout + without.stderr).count(skipped) == 1
        allowed = run(*arguments, "--allow-code")
        assert allowed.returncode == EXIT_COMPLETE, allowed.stderr
        assert skipped not in allowed.stdout + allowed.stderr
    assert (here / "page.html").stat().st_size > 1000
    for permission in ((), ("--allow-code",)):
        to = f"out{len(permission)}"
        ended = run("export", "brevity", "--to", to, "--format", "jsonl", *permission)
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        assert (here / to / "brevity.jsonl").read_text().count('"unused"') == 16
    assert run("allow", ".").returncode == EXIT_COMPLETE
    assert skipped not in run("report", "brevity").stderr
    assert run("check", "brevity.yaml").returncode == EXIT_COMPLETE
    assert "nothing to delete" in run("runs", "gc", "brevity").stdout
    with served(here / "runs", tmp_path / "state", (orchestrator,), here) as link:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page, api = link().partition("?")[0], f"{link().partition('?')[0]}api/runs/brevity"
        opener.open(link(), timeout=30).close()
        with opener.open(page, timeout=30) as reply:
            assert b"static/app.js" in reply.read()
        with opener.open(api, timeout=30) as reply:
            assert json.load(reply)["content"]
        with opener.open(f"{api}/items/0", timeout=30) as reply:
            assert b"unused" in reply.read()
    assert not list(here.rglob("__pycache__"))
