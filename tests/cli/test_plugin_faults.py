"""Plug-ins of a user that break their contract: words that help, and no wrong numbers."""

import polars as pl
import pytest

from orchestrator.datasets import demo
from orchestrator.errors import EXIT_FAILED, EXIT_PARTIAL

METHOD = """
from orchestrator.methods.answers import Kind as Answers

class Mine(Answers):
    frame = "answers"

    async def evaluate(self, unit, ask):
        sampling = self.config.answer.sampling()
        answer = await ask.generate(unit.models[0], unit.item.messages, sampling)
        row = {**dict.fromkeys(self.columns), **self.identify(unit), "turn": 1, "text": answer.text}
        return [ROW]
"""


@pytest.fixture
def method(here, recipe, monkeypatch):
    """Write a method of a user, and a recipe that uses it."""
    monkeypatch.syspath_prepend(here)

    def write(row, name, **changes):
        (here / f"{name}_kinds").mkdir()
        (here / f"{name}_kinds" / "mine.py").write_text(METHOD.replace("ROW", row))
        return recipe(methods=[{"kind": f"{name}_kinds.mine", "answer": {"max_tokens": 4}}])

    return write


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("misspelt", "{**row, 'mean_logprb': 1.0}", "did you mean 'mean_logprob'?"),
        ("text_for_number", "{**row, 'mean_logprob': 'high'}", "column 'mean_logprob' can't hold"),
        ("left_out", "{k: v for k, v in row.items() if k != 'turn'}", "a row has no 'turn'"),
        ("beyond_64_bits", "{**row, 'n_tokens': 1 << 64}", "column 'n_tokens' can't hold"),
    ],
)
def test_a_row_that_breaks_its_contract_ends_the_run_and_is_no_null(
    command, here, method, name, row, words
):
    code, _, err = command("run", method(row, name), "--allow-code", "--display", "none")
    assert code == EXIT_FAILED
    assert words in err
    assert f"method '{name}_kinds.mine'" in err
    assert "(unit: item '" in err
    assert "Traceback" not in err
    assert not (here / "runs" / "made" / "results" / "answers.parquet").exists()


def test_few_broken_rows_are_failed_units_with_their_cause(command, here, method):
    few = "{**row, 'text': 1.5 if row['item'] == FIRST and row['model'] == 'weak' else row['text']}"
    few = few.replace("FIRST", repr(demo.generate(6, 0)[0].key))
    path = method(few, "few")
    assert command("run", path, "--allow-code", "--display", "none")[0] == EXIT_PARTIAL
    rows = pl.read_parquet(here / "runs" / "made" / "results" / "answers.parquet")
    bad = rows.filter(pl.col("status") != "ok")
    assert len(bad) == 1
    assert set(bad["cause"]) == {"method"}
    assert "column 'text' can't hold 1.5 (float)" in bad["message"][0]
