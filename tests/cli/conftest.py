import json

import pytest

from orchestrator.cli import main
from tests.launched import recipe_data


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder that the command is called in."""
    monkeypatch.chdir(tmp_path)
    # What another test or the caller's shell set must not decide widths and colours.
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def command(here, capsys):
    """Call the command: exit code, stdout, stderr."""

    def call(*arguments):
        code: int | str | None
        try:
            code = main(list(arguments))
        except SystemExit as stopped:
            code = stopped.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def recipe(here):
    """Write a recipe of launched fake servers; keywords replace parts of it."""

    def write(name="made", **changes):
        path = here / f"{name}.yaml"
        path.write_text(json.dumps(recipe_data(name, **changes)), encoding="utf-8")
        return str(path.relative_to(here))

    return write


@pytest.fixture
def lines(here):
    """Write a JSONL file of rows."""

    def write(name, *rows):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (here / name).write_text(text, encoding="utf-8")
        return {"path": name}

    return write
