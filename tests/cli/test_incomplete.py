"""A run that is not complete says so first, in every format, and failed units are counted once."""

import json

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL
from orchestrator.interface import api
from orchestrator.report.progress import Completeness
from orchestrator.runner.servers.slurm_chain import HANDS_ON, OF_A_SHARD

FIRST = "Incomplete: 13 of 18 units remain; these results use the 5 completed ones."
METHOD = """
from orchestrator.ask import AskFailed
from orchestrator.methods.answers import Kind as Answers
from orchestrator.records import Failure

class Mine(Answers):
    frame = "answers"

    async def evaluate(self, unit, ask):
        sampling = self.config.answer.sampling()
        answer = await ask.generate(unit.models[0], unit.item.messages, sampling)
        if unit.models[0] == "weak":
            raise AskFailed(Failure("of_the_unit", "no answer", permanent=True))
        row = {**dict.fromkeys(self.columns), "text": answer.text}
        failed = {"status": "failed", "cause": "of_a_row", "message": "no verdict"}
        # Two rows of one unit that failed are one unit that failed.
        bad = unit.models[0] == "strong"
        return [{**(failed if bad else row), "turn": turn} for turn in (1, 2)]
"""


@pytest.fixture
def begun(command, recipe):
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    code, out, _ = command("run", path, "--display", "none", "--set", "budget.requests=5")
    assert code == EXIT_PARTIAL
    return out


def joined(text):
    return " ".join(text.replace("\\", "").split())


def test_the_terminal_begins_with_it(command, begun):
    for out in (begun, command("report", "made")[1], command("report", "made", "--full")[1]):
        assert joined(out).startswith(FIRST)


def test_markdown_begins_with_it(command, begun):
    out = command("report", "made", "--format", "markdown")[1]
    assert joined(out).startswith(f"> **{FIRST}**")


def test_json_begins_with_it(command, begun):
    first = json.loads(command("report", "made", "--format", "json")[1])
    assert (first["complete"], first["total"], first["ended"], first["left"]) == (False, 18, 5, 13)
    assert first["warning"] == FIRST
    assert list(first)[:3] == ["format", "warning", "complete"]
    assert first["run"]["complete"] is False


def test_an_export_says_it_beside_the_files(command, here, begun):
    code, _, err = command("export", "made", "--to", "out", "--format", "csv")
    assert code == EXIT_COMPLETE
    assert FIRST in joined(err)
    about = json.loads((here / "out" / "export.json").read_text())
    assert (about["complete"], about["left"], about["rows"]["answers.csv"]) == (False, 13, 5)


def test_pages_and_notebooks_say_it(command, here, begun):
    assert command("report", "made", "--html", "page.html")[0] == EXIT_COMPLETE
    assert FIRST in (here / "page.html").read_text()
    assert FIRST in api.load(here / "runs" / "made")._repr_html_()


def test_a_complete_run_says_nothing(command, recipe):
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    code, out, _ = command("run", path, "--display", "none")
    assert code == EXIT_COMPLETE
    assert "Incomplete" not in out
    said = json.loads(command("report", "made", "--format", "json")[1])
    assert (said["complete"], said["warning"]) == (True, "")


def test_failed_units_are_counted_alike_everywhere(command, recipe, here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    (here / "counted_kinds").mkdir()
    (here / "counted_kinds" / "mine.py").write_text(METHOD)
    path = recipe(methods=[{"kind": "counted_kinds.mine", "answer": {"max_tokens": 4}}])
    # 6 items by 3 models: all of weak fail, and of strong all rows do.
    # The second is a job of which another shows the results.
    for limit, hands_on, n_failed, n_in_all in (
        (("--limit", "3"), "", 6, 6), ((), OF_A_SHARD, 6, 12), ((), "", 0, 12),
    ):  # fmt: skip
        monkeypatch.setenv(HANDS_ON, hands_on)
        code, _, err = command("run", path, *limit, "--display", "none", "--allow-code")
        assert code == EXIT_PARTIAL
        assert f"{n_in_all} units failed" in joined(err) or hands_on
        said = json.loads(command("status", "made", "--json")[1])
        assert (said["units_failed"], said["units_failed_before"]) == (
            n_failed,
            n_in_all - n_failed,
        )
        assert f"{n_in_all} failed" in joined(command("status", "made")[1])
    command("export", "made", "--to", "out")
    assert json.loads((here / "out" / "export.json").read_text())["failed"] == 12
    assert api.load(here / "runs" / "made").completeness == Completeness(18, 18, 12)
