"""Selective judging on a run: what is kept, by how many labels, and what is refused."""

import json
import pathlib

import msgspec
import numpy as np
import polars as pl
import pytest

from orchestrator.analyses._few_labels import SelectiveAnalysis
from orchestrator.clusters import clusters_of
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import DatasetError, UsageError
from orchestrator.methods import pairwise_ranking
from orchestrator.ranking.labelled import Selective, kept_verdicts
from orchestrator.report.generic import generic_json
from orchestrator.statistics.selective import certified
from tests.summaries import judged as invented
from tests.tables import lines

N = 300


@pytest.fixture
def study(tmp_path):
    """A judge that is wrong where it is unsure; labels of some pairs, and a context."""

    def make(n_labels=200, n_items=N, label=None, columns="item,model_a,model_b,label", **settings):
        rng = np.random.default_rng(0)
        margin = rng.random(n_items)
        is_wrong = rng.random(n_items) < np.where(margin < 0.4, 0.4, 0.01)
        rows, said = [], []
        for at in range(n_items):
            share = 0.5 + 0.5 * margin[at]
            both = invented.leaning(share), invented.leaning(1.0 - share)
            rows.append(invented.pair_row(f"i{at}", "good", "poor", *both))
            said.append(f"i{at},good,poor,{label or ('2' if is_wrong[at] else '1')}")
        file = tmp_path / "labels.csv"
        chosen = [said[at] for at in rng.permutation(n_items)[:n_labels]]
        file.write_text("\n".join([columns, *chosen]) + "\n", encoding="utf-8")
        method = pairwise_ranking.Kind(pairwise_ranking.Config(judges=("judge",)))
        source = Source("pairwise_ranking", "pairwise_ranking", method, "judgments")
        frames = {"judgments": invented.pairs(rows)}
        context = Context("selective", frames, pl.DataFrame(), [source], 0.95, 200, 0)
        return Selective(labels=str(file), **settings), context, margin, is_wrong

    return make


def summarise(config, context):
    return SelectiveAnalysis(config).summarise(context)


def test_what_is_kept_is_seldom_wrong_and_most_of_what_could_be(study):
    config, context, margin, is_wrong = study()
    of_risk = {line["wrong at most"]: line for line in lines(summarise(config, context)[0])}
    line = of_risk[0.1]
    is_kept = margin >= line["from"] - 1e-9
    assert is_wrong[is_kept].mean() <= 0.1
    assert line["kept"] == pytest.approx(is_kept.mean())
    assert 0.5 < line["kept"] <= 0.75
    assert line["labels"] < line["prompts"] == 200
    assert of_risk[0.2]["kept"] >= line["kept"]


def test_the_sentence_says_what_the_line_says(study):
    config, context, *_ = study(risk=(0.1,))
    table = summarise(config, context)[0]
    (line,) = lines(table)
    said = f"{100 * line['kept']:.0f} % of the verdicts are kept, at most 10 % of them wrong (95 %)"
    assert any(note.startswith(said) for note in table.notes)


def test_with_few_labels_nothing_is_kept_and_it_is_said_why(study):
    config, context, *_ = study(n_labels=20, risk=(0.1,))
    (line,) = lines(summarise(config, context)[0])
    assert line["kept"].value is None
    assert "label more" in line["kept"].why
    assert line["from"] is None


def test_the_curve_has_each_share_and_its_bounds(study):
    config, context, *_ = study()
    table = summarise(config, context)[1]
    shown = lines(table)
    assert shown[-1]["kept, %"] == 100.0
    assert table.curves is not None
    for line in shown:
        if line["labels"]:
            assert line["wrong labels, %"] <= line["upper bound, %"]


def test_a_tie_on_one_side_is_half_wrong(study):
    config, context, *_ = study(label="tie")
    rows, (found,) = kept_verdicts(context, config)
    assert set(rows.frame.filter(pl.col("label").is_not_null())["wrong"]) == {0.5}
    assert found.rates[-1] == pytest.approx(0.5)


def test_verdicts_of_a_prompt_count_once_unless_the_run_alone_is_meant(study):
    config, context, *_ = study()
    # The prompts are three: all verdicts of one depend on each other.
    keys = [f"i{at}" for at in range(N)]
    items = pl.DataFrame({"item": keys, "cluster": [f"c{at % 3}" for at in range(N)]})
    of = clusters_of({**context.frames, "items": items})
    together = msgspec.structs.replace(context, clusters=of)
    _, (found,) = kept_verdicts(together, config)
    assert found.n_prompts == 3
    assert not certified(found, 0.2, 0.05)[1]
    _, (alone,) = kept_verdicts(together, config.model_copy(update={"about": "run"}))
    assert alone.n_prompts == 200
    assert certified(alone, 0.2, 0.05)[1]


def test_unequal_prompts_are_said_to_give_no_rate_of_all_verdicts(study):
    def said(n_alone, **settings):
        config, context, *_ = study(**settings)
        clusters = [f"c{at if at < n_alone else n_alone + at // 2}" for at in range(N)]
        items = pl.DataFrame({"item": [f"i{at}" for at in range(N)], "cluster": clusters})
        of = clusters_of({**context.frames, "items": items})
        notes = summarise(config, msgspec.structs.replace(context, clusters=of))[0].notes
        return any("unequal numbers of verdicts" in note for note in notes)

    assert said(100)
    assert not said(0)
    assert not said(100, about="run")


def test_labels_that_were_not_drawn_alike_are_refused(study):
    config, context, *_ = study(label="1,0.5", columns="item,model_a,model_b,label,probability")
    with pytest.raises(DatasetError, match="not drawn at random alike"):
        summarise(config, context)


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ("item,model,label", "i0,good,3", "labels of single answers"),
        ("item,model_a,model_b,label", "i0,good,poor,", "no label yet"),
    ],
)
def test_labels_of_no_pair_are_refused(study, columns, row, said):
    config, context, *_ = study()
    with pathlib.Path(config.labels).open("w", encoding="utf-8") as file:
        file.write(f"{columns}\n{row}\n")
    with pytest.raises(UsageError, match=said):
        summarise(config, context)


def test_a_judge_that_judged_nothing_is_refused(study):
    config, context, *_ = study(judge="another")
    with pytest.raises(UsageError, match="no rows by 'another'"):
        summarise(config, context)


def test_all_tables_can_be_written_as_json(study):
    for table in summarise(*study()[:2]):
        assert json.loads(json.dumps(generic_json(table)))["rows"]


def with_doubts(context, margin):
    """Coverage that is low where the judge is wrong, and orders that say nothing."""
    rng = np.random.default_rng(5)
    rows = context.frames["judgments"]
    at = rows["item"].str.slice(1).cast(int).to_numpy()
    off = 0.2 * rng.random(len(rows))
    rows = rows.with_columns(
        coverage_ab=pl.Series(margin[at]),
        coverage_ba=pl.lit(1.0),
        prefer_a_ab=pl.col("prefer_a") + pl.Series(off),
        prefer_a_ba=pl.col("prefer_a") - pl.Series(off),
    )
    return msgspec.structs.replace(context, frames={**context.frames, "judgments": rows})


def test_coverage_and_orders_are_doubts_of_their_own(study):
    config, context, margin, _ = study(risk=(0.1,), doubts=("coverage",))
    context = with_doubts(context, margin)
    kept, curve = summarise(config, context)
    (line,) = lines(kept)
    assert line["by"] == "coverage"
    assert line["kept"] == pytest.approx((np.round(margin, 6) >= line["from"]).mean())
    assert curve.key == "selective.curve.coverage"
    (of_orders,) = kept_verdicts(context, config.model_copy(update={"doubts": ("orders",)}))[1]
    apart = context.frames["judgments"].select(
        1 - (pl.col("prefer_a_ab") - pl.col("prefer_a_ba")).abs()
    )
    assert of_orders.least[-1] == pytest.approx(apart.to_series().min(), abs=1e-6)


def test_of_several_doubts_each_has_its_part_of_the_error(study):
    config, context, margin, _ = study(risk=(0.1,), doubts=("orders", "margin", "margin"))
    context = with_doubts(context, margin)
    kept, *curves = summarise(config, context)
    assert [curve.key for curve in curves] == ["selective.curve.orders", "selective.curve"]
    (line,) = lines(kept)
    assert line["by"] == "margin"
    _, found = kept_verdicts(context, config)
    at, is_certified = certified(found[1], 0.1, 0.05 / 2)
    assert is_certified
    assert line["kept"] == found[1].shares[at]
    assert any("its part of the error" in note for note in kept.notes)


def test_a_doubt_that_is_not_known_is_refused(study):
    config, context, *_ = study(doubts=("coverage",))
    rows = context.frames["judgments"].with_columns(coverage_ab=None, coverage_ba=None)
    context = msgspec.structs.replace(context, frames={**context.frames, "judgments": rows})
    with pytest.raises(UsageError, match=r"'coverage' of some verdicts .* is not known"):
        summarise(config, context)
