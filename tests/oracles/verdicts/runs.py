"""Studies as runs: the real commands, with a back-end in this process."""

import contextlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

from orchestrator.cli import main
from tests.oracles.verdicts.studies import Study

BACKEND: Final = Path(__file__).with_name("studied.py")
_WIDE: Final = "400"
JUDGE: Final = "judge"
PAIRWISE: Final = {"kind": "pairwise_ranking", "judges": [JUDGE]}
POINTWISE: Final = {"kind": "pointwise", "judges": [JUDGE]}


def command(*arguments: str | Path) -> tuple[int, str, str]:
    """Call the command on a terminal of many columns: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    wide = {"COLUMNS": _WIDE, "NO_COLOR": "1", "TERM": "dumb"}
    with (
        mock.patch.dict(os.environ, wide),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code: Any = main([str(one) for one in arguments])
        except SystemExit as stopped:
            code = stopped.code
    return int(code or 0), out.getvalue(), err.getvalue()


def told(*arguments: str | Path) -> str:
    """Return what the command prints, whatever its verdict; it must not fail otherwise."""
    code, out, err = command(*arguments)
    assert code in (0, 3, 4, 5), (arguments, code, err)
    return out


def made(study: Study, folder: Path, **changes: Any) -> Path:
    """Run a study with the method that its verdicts are for; return its run directory.

    Args:
        study: The study.
        folder: A new folder for it.
        changes: Other parts of the recipe.
    """
    folder.mkdir(parents=True)
    (folder / "table.json").write_text(json.dumps(study.table()), encoding="utf-8")
    judge = {"kind": str(BACKEND), "table": str(folder / "table.json")}
    models: dict[str, Any] = {name: {"answers": {"field": name}} for name in study.models}
    models[JUDGE] = {"base_url": "http://127.0.0.1:9", "backend": judge}
    method = POINTWISE if study.scores else PAIRWISE
    return started(folder, study.rows(), models, [method], **changes)


def started(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    models: Mapping[str, Any],
    methods: Sequence[Mapping[str, Any]],
    **changes: Any,
) -> Path:
    """Run a recipe over some items; return its run directory."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "items.jsonl").write_text(lines, encoding="utf-8")
    recipe = {
        "name": "study",
        "models": models,
        "dataset": {"path": "items.jsonl"},
        "methods": methods,
        "probe": False,
        "statistics": {"n_resamples": 100},
        **changes,
    }
    (folder / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    run = folder / "run"
    told("run", folder / "recipe.json", "--run-dir", run, "--allow-code", "--display", "none")
    return run
