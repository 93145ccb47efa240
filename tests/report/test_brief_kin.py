"""What the first screen says of a judge beyond its judgments: itself, kin, training, style."""

from dataclasses import replace

import msgspec
import pytest

from orchestrator.report.brief import brief
from orchestrator.report.questions import missing_check, of_settings, of_style
from orchestrator.statistics.trust import OfModel
from orchestrator.tables import Column, Measured, make_table
from tests.report.samples import an_analysis


def settings(judge, *candidates, dataset="jsonl", **method):
    models = {f"c{n}": one for n, one in enumerate(candidates)} | {"j": judge}
    entry = {"kind": "pairwise_ranking", "judges": ["j"], **method}
    return {"models": models, "methods": [entry], "dataset": {"kind": dataset}}


def said(*args, **options):
    checks = of_settings(settings(*args, **options), "pairwise_ranking", None)
    return [check.says.text() for check in checks]


@pytest.mark.parametrize(
    ("judge", "other", "words"),
    [
        ({"model": "gpt-4o"}, {"model": "gpt-4o"}, "judges itself"),
        ({"model": "openai/gpt-4o"}, {"model": "GPT-3.5-turbo"}, "of one family"),
        ({"weights": "Qwen/Qwen2.5-7B"}, {"model": "qwen3-8b"}, "of one family"),
        ({"model": "fake:1.0"}, {"model": "fake:0.3"}, ""),
        ({"model": "model-a"}, {"model": "model-b"}, ""),
        ({"model": "gpt-4o"}, {"model": "llama-3"}, ""),
    ],
)
def test_a_judge_of_itself_and_of_its_family_is_named(judge, other, words):
    found = said(judge, other, {"model": "mistral-7b"})
    assert len(found) == bool(words)
    assert all(words in one and "c0" in one and "c1" not in one for one in found)


def test_a_judge_among_its_candidates_is_named():
    found = said({"model": "gpt-4o"}, {"model": "llama-3"}, candidates=["c0", "j"])
    assert ["judges itself" in one for one in found] == [True]


@pytest.mark.parametrize(("dataset", "n"), [("demo", 0), ("jsonl", 1), ("everyday", 1)])
def test_a_bundled_judge_is_out_of_its_domain_elsewhere(dataset, n):
    found = said({"weights": "bundled:judge"}, {"model": "llama-3"}, dataset=dataset)
    assert sum("trained on the tasks of the demo alone" in one for one in found) == n


def styled(*rows):
    columns = [Column("model"), Column("rating", "rating"), Column("at equal style", "rating"),
               Column("change", "signed", 0)]  # fmt: skip
    cells = [(name, *(Measured(value, value - 9, value + 9) for value in of)) for name, *of in rows]
    table = make_table("style_control", "Style", columns, cells)
    return msgspec.structs.replace(table, source="pairwise_ranking")


@pytest.mark.parametrize(
    ("rows", "words", "is_doubtful"),
    [
        (
            [("a", 1000, 1268, 268), ("b", 1254, 986, -268)],
            "a is rated highest; a rises by 268 points",
            True,
        ),
        (
            [("a", 1100, 1040, -60), ("b", 900, 960, 60)],
            "a is rated highest, too; a falls by 60 points",
            True,
        ),
        (
            [("a", 1100, 1092, -8), ("b", 900, 908, 8)],
            "a is rated highest, too; a falls by 8 points",
            False,
        ),
    ],
)
def test_what_equal_style_makes_of_the_ratings_is_said(rows, words, is_doubtful):
    (check,) = of_style([styled(*rows)], "pairwise_ranking")
    assert (check.says.text(), check.is_doubtful) == (
        f"at equal length and style {words}.", is_doubtful
    )  # fmt: skip


def test_the_first_screen_holds_them():
    analysis = replace(an_analysis(), source="pairwise_ranking", judge="j")
    found = brief(
        rankings=[analysis],
        tables=[styled(("a", 1000, 1268, 268), ("b", 1254, 986, -268))],
        settings=settings({"weights": "bundled:judge"}, {"model": "llama-3"}),
    )
    assert len(found.questions) == 1
    about = [check.about for check in found.questions[0].checks if check.is_doubtful]
    assert {"judge", "style"} <= set(about)


def test_missing_judgments_of_one_model_are_named():
    trust = an_analysis().trust[0]
    models = (OfModel("a", 120, 38), OfModel("b", 120, 38), OfModel("c", 120, 76))
    told = replace(trust, of_models=models, causes=(("too_long", 76),))
    check = missing_check(76, 180, [told])
    assert check.says.text() == (
        "76 of 180 judgments missing and not filled in (too_long 76); "
        "76 of them among the 120 with c."
    )
    even = replace(told, of_models=tuple(OfModel(one, 120, 50) for one in "abc"))
    assert "among" not in missing_check(75, 180, [even]).says.text()
