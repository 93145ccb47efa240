"""A user's own packages named `backends` and `launch`, first on the module path."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launched import recipe_data


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "made.yaml").write_text(json.dumps(recipe_data(n=2)), encoding="utf-8")
    for name in ("backends", "launch"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("OWNER = 'a user'\n", encoding="utf-8")
        (package / "fake.py").write_text("raise SystemExit('a module of the user')\n")
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    known = os.pathsep.join((str(folder), os.environ["PYTHONPATH"]))
    environment = {**os.environ, "PYTHONPATH": known}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip


def test_a_run_uses_orchestrators_own_packages(folder):
    ended = python(folder, "-m", "orchestrator", "run", "made.yaml", "--display", "none")
    assert ended.returncode == 0, ended.stderr


def test_a_users_package_that_was_imported_before_is_named_in_the_error(folder):
    script = "import backends, orchestrator\norchestrator.run('made.yaml', display='none')"
    ended = python(folder, "-c", script)
    assert ended.returncode == 1
    assert f"the package 'backends' of {folder / 'backends'} was imported before" in ended.stderr
