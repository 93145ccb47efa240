import json

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from orchestrator.analyses._judge_accuracy import JudgeAccuracyAnalysis
from orchestrator.clusters import OVER
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.settings import Winner
from orchestrator.errors import UsageError
from orchestrator.judgment.pointwise import compare_scores, score_table
from orchestrator.methods import pairwise_ranking, pairwise_scoring, pointwise
from orchestrator.ranking.preferences import preferences
from orchestrator.ranking.winners import JudgedWinner
from orchestrator.statistics.judgments import davidson
from tests.summaries import judged
from tests.summaries.judged import around
from tests.tables import lines

N = 20
# Of every item but each fifth (a tie) one answer is right: x on even items, y on odd ones.
RIGHT = {f"i{k}": None if k % 5 == 0 else "x" if k % 2 == 0 else "y" for k in range(N)}
ANSWERS = pl.DataFrame(
    [
        {"method": "answers", "item": item, "turn": 1, "model": model,
         "exact_match": right == model, "status": "ok"}
        for item, right in RIGHT.items()
        for model in ("x", "y")
    ]
)  # fmt: skip
ITEMS = pl.DataFrame(
    [
        {
            "item": item,
            "fields": json.dumps({"better": {"x": "1", "y": "2"}.get(right or "", "tie")}),
        }
        for item, right in RIGHT.items()
    ]
)


def rated(n_wrong, method="pointwise", low=3.0):
    """Ratings by a judge that is wrong on the first `n_wrong` items that have a winner."""
    rows, wrong = [], n_wrong
    for item, right in RIGHT.items():
        swapped = right is not None and wrong > 0
        wrong -= swapped
        for model in ("x", "y"):
            good = (model == right) != swapped
            rows.append(judged.score_row(item, model, around(7.0 if good else low), method=method))
    return rows


def tables(frames, sources, **config):
    analysis = JudgeAccuracyAnalysis(JudgedWinner(**config))
    context = Context(
        "study",
        {"answers": ANSWERS, "items": ITEMS, **frames},
        pl.DataFrame(),
        sources,
        0.95,
        300,
        0,
    )
    return {table.key: table for table in analysis.summarise(context)}


def source(name="pointwise", **settings):
    config = pointwise.Config(judges=("judge",), **settings)
    return Source(name, "pointwise", pointwise.Kind(config), "scores")


def pointwise_tables(rows, **config):
    return tables({"scores": judged.scores(rows)}, [source()], **config)


def test_accuracy_is_the_share_of_right_verdicts_among_pairs_with_a_winner():
    (row,) = lines(pointwise_tables(rated(4))["judge_accuracy.pointwise"])
    assert row["pairs"] == 16
    assert {row[name] for name in ("mode", "[mean]", "mean", "RAM", "QT", "PS")} == {0.75}


def test_pairs_with_a_tie_as_label_are_left_out_and_counted():
    table = pointwise_tables(rated(0))["judge_accuracy.pointwise"]
    assert "4 pairs labelled as ties are excluded" in table.basis


def test_a_tied_verdict_counts_half():
    rows = [judged.score_row(item, m, around(5)) for item in RIGHT for m in ("x", "y")]
    found = lines(pointwise_tables(rows)["judge_accuracy.intervals"])
    assert {row["accuracy"].value for row in found} == {0.5}
    assert {row["tied verdicts"] for row in found} == {1.0}


def test_a_finer_estimator_beats_a_coarser_one_where_only_it_decides():
    # Modes tie at 5 everywhere; means do not.
    better, worse = [0.1, 0.2, 0.4, 0.3, 0.0], [0.3, 0.2, 0.4, 0.1, 0.0]
    rows = [
        judged.score_row(item, m, better if m == right else worse)
        for item, right in RIGHT.items()
        for m in ("x", "y")
    ]
    found = pointwise_tables(rows)
    (row,) = lines(found["judge_accuracy.pointwise"])
    assert (row["mode"], row["mean"]) == (0.5, 1.0)
    (contrast,) = lines(found["judge_accuracy.contrasts"])
    assert contrast["difference"].value == pytest.approx(0.5)
    assert contrast["p"] < 0.01
    assert (
        "in 1 of 1 cases (0 equal); significantly in 1"
        in found["judge_accuracy.contrasts"].notes[0]
    )


def test_missing_judgments_are_said_and_are_not_wrong():
    rows = [*rated(0)[:-1], judged.failed_score("i19", "y")]
    table = pointwise_tables(rows)["judge_accuracy.pointwise"]
    assert lines(table)[0]["mean"] == 1.0
    assert any("1 pairs were not judged" in note for note in table.notes)


def test_traces_are_counted_beside_the_mean_of_their_distributions():
    """Davidson's model names the side of the margin, and believes more traces more."""
    counts = [[4.0, 0.0, 0.0], [3.0, 0.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]]
    sides, rows = [], []
    for k, (item, right) in enumerate(RIGHT.items()):
        traces = counts[k % 4] if right != "y" else counts[k % 4][::-1]
        lean = judged.leaning(0.7 if right != "y" else 0.3), judged.leaning(0.4)
        rows.append(judged.pair_row(item, "x", "y", *lean, traces=traces))
        sides.append({None: 0.0, "x": 1.0, "y": -1.0}[right])
    config = pairwise_ranking.Config(judges=("judge",))
    source = Source(
        "pairwise_ranking",
        "pairwise_ranking",
        pairwise_ranking.Kind(config),
        "judgments",
    )
    found = tables({"judgments": judged.pairs(rows)}, [source])
    truth = np.array(sides)
    given = np.array([row["traces"] for row in rows])
    margin = (given[:, 0] - given[:, 2]) / 4
    kept = truth != 0
    credit = np.mean(0.5 + 0.5 * np.sign(margin[kept]) * truth[kept])
    (line,) = lines(found["judge_accuracy.pairwise"])
    assert line["margin of traces"] == line["Davidson"] == pytest.approx(credit)
    errors = {one["estimator"]: one for one in lines(found["judge_accuracy.errors"])}
    for name, values in (("margin of traces", margin), ("Davidson", davidson(given)[0])):
        expected = np.mean(0.25 * (values[kept] - truth[kept]) ** 2)
        assert errors[name]["mean squared error"].value == pytest.approx(expected)
        assert errors[name]["minus that of the mode"].value is not None


def test_each_judge_has_a_model_of_its_own_and_who_does_not_reason_has_none():
    def of(judge, traces):
        return [
            judged.pair_row(f"i{k}", "x", "y", judged.leaning(0.6), judged.leaning(0.4),
                            judge=judge, traces=one)
            for k, one in enumerate(traces)
        ]  # fmt: skip

    sure = [[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]] * 5
    unsure = [[1.0, 0.0, 1.0], [2.0, 0.0, 0.0]] * 5

    def read(rows):
        return preferences(judged.pairs(rows).with_columns(pl.col("item").alias(n) for n in OVER))

    both = read([*of("s", sure), *of("u", unsure)])
    assert both.estimators[-2:] == ("margin", "davidson")
    for judge, traces in (("s", sure), ("u", unsure)):
        (one,) = (found for name, found in both.by_judge() if name == judge)
        assert one.values("davidson") == pytest.approx(davidson(np.array(traces))[0])
    plain = read(of("p", [None] * 4))
    assert "davidson" not in plain.estimators
    assert len(plain.rows) == 4


def test_errors_count_how_sure_a_verdict_is_and_compare_it_with_the_mode():
    # Every verdict of the mode is sure; the mean is as sure as the ratings are apart.
    found = {
        line["estimator"]: line
        for line in lines(pointwise_tables(rated(4))["judge_accuracy.errors"])
    }
    assert found["mode"]["mean squared error"].value == pytest.approx(4 / 16)
    assert found["mode"]["minus that of the mode"] is None
    table = score_table([around(7.0), around(3.0)])
    mean = compare_scores(table, np.array([0]), np.array([1]))["mean"].item()
    error = (12 * (1 - mean) ** 2 + 4 * (1 + mean) ** 2) / 4 / 16
    assert found["mean"]["mean squared error"].value == pytest.approx(error)
    change = found["mean"]["minus that of the mode"]
    assert change.value == pytest.approx(error - 4 / 16)
    assert change.low < change.value < change.high


def test_errors_of_pairs_are_held_against_the_mode_of_their_aggregation():
    found = {line["estimator"]: line for line in lines(pairwise_tables()["judge_accuracy.errors"])}
    for aggregation in ("pre", "post"):
        mean, mode = (found[f"{one}, {aggregation}"] for one in ("mean", "mode"))
        gap = mean["mean squared error"].value - mode["mean squared error"].value
        assert mean["minus that of the mode"].value == pytest.approx(gap)


def test_reasoning_is_compared_where_nothing_else_differs():
    frame = judged.scores([*rated(0), *rated(8, "reasoned")])
    sources = [
        source(),
        source("reasoned", chain_of_thought=True),
        source("other scale", chain_of_thought=True, scale=(1, 5)),
    ]
    found = tables({"scores": frame}, sources, methods=("pointwise", "reasoned"))
    rows = lines(found["judge_accuracy.reasoning"])
    assert {(row["first"], row["second"]) for row in rows} == {("pointwise", "reasoned")}
    assert {row["difference"].value for row in rows} == {0.5}
    assert "judge_accuracy.reasoning" not in tables(
        {"scores": frame}, sources, methods=("pointwise",)
    )


def pairwise_tables():
    rows = [
        judged.pair_row(item, "x", "y", *([judged.leaning(p), judged.leaning(1 - p)]))
        for item, right in RIGHT.items()
        for p in [0.9 if right == "x" else 0.1]
    ]
    config = pairwise_ranking.Config(judges=("judge",))
    sources = [
        Source(
            "pairwise_ranking",
            "pairwise_ranking",
            pairwise_ranking.Kind(config),
            "judgments",
        )
    ]
    return tables({"judgments": judged.pairs(rows)}, sources)


def test_pairwise_estimators_have_a_table_of_their_own():
    (row,) = lines(pairwise_tables()["judge_accuracy.pairwise"])
    assert (row["pairs"], row["mean, pre"], row["mode, post"]) == (16, 1.0, 1.0)


def test_mean_against_mode_stands_by_section_of_the_benchmark():
    # In mathematics modes tie and means do not; in chat both are right.
    close = {True: [0.1, 0.2, 0.4, 0.3, 0.0], False: [0.3, 0.2, 0.4, 0.1, 0.0]}
    clear = {True: [0.0, 0.0, 0.0, 0.0, 1.0], False: [1.0, 0.0, 0.0, 0.0, 0.0]}
    subsets = ("math-prm", "hep-python", "alpacaeval-easy")
    rows = []
    for at, (item, right) in enumerate(RIGHT.items()):
        subset = subsets[at % 3]
        said = clear if subset == "alpacaeval-easy" else close
        rows += [judged.score_row(item, m, said[m == right], category=subset) for m in ("x", "y")]
    found = {
        row["section"]: row for row in lines(pointwise_tables(rows)["judge_accuracy.categories"])
    }
    assert set(found) == {"Chat", "Reasoning"}
    chat, reasoning = found["Chat"], found["Reasoning"]
    assert (reasoning["mean"], reasoning["mode"], reasoning["difference"].value) == (1.0, 0.5, 0.5)
    assert (chat["mean"], chat["mode"], chat["difference"].value) == (1.0, 1.0, 0.0)
    assert chat["pairs"] + reasoning["pairs"] == 16
    assert "judge_accuracy.categories" not in pointwise_tables(rated(0))


def test_the_mean_of_two_scores_over_both_orders_is_an_estimator():
    # The levels lean to x everywhere; the scores, averaged over both orders, name the right one.
    rows = [
        {
            **judged.pair_row(item, "x", "y", judged.leaning(0.9), judged.leaning(0.1),
                              method="scoring"),
            "p_first_ab": [], "p_second_ab": [], "p_first_ba": [], "p_second_ba": [],
            "score_a": 0.5 * (3.0 + 6.0),
            "score_b": 0.5 * (5.0 + (2.0 if right == "x" else 7.0)),
        }
        for item, right in RIGHT.items()
    ]  # fmt: skip
    method = pairwise_scoring.Kind(pairwise_scoring.Config(judges=("judge",)))
    frame = judged.frame(pairwise_scoring, rows)
    sources = [Source("scoring", "pairwise_scoring", method, "pair_scores")]
    found = tables({"pair_scores": frame}, sources)
    (row,) = lines(found["judge_accuracy.pairwise"])
    assert (row["scores"], row["mean, pre"]) == (1.0, 0.5)
    contrasts = {row["second"]: row for row in lines(found["judge_accuracy.contrasts"])}
    assert contrasts["mean of scores"]["difference"].value == -0.5
    (ranking, *_) = lines(pairwise_tables()["judge_accuracy.pairwise"])
    assert "scores" not in ranking


def test_the_winner_may_stand_in_a_column_of_the_dataset():
    winner = {"field": "better", "values": {"1": "x", "2": "y"}}
    (row,) = lines(pointwise_tables(rated(4), winner=winner)["judge_accuracy.pointwise"])
    assert (row["pairs"], row["mean"]) == (16, 0.75)


@pytest.mark.parametrize(("names", "sides"), [(("x", "y"), "names"), (("y", "x"), "sides")])
def test_the_winner_may_stand_in_a_file_of_labels(tmp_path, names, sides):
    path = tmp_path / "labels.jsonl"
    a, b = names
    with path.open("w") as file:
        for item, right in RIGHT.items():
            word = {a: "model_a", b: "model_b"}.get(right) if sides == "sides" else right
            label = word or "tie (both bad)"
            for annotator in range(2):
                row = {"item": item, "model_a": a, "model_b": b, "label": label,
                       "annotator": annotator}  # fmt: skip
                file.write(json.dumps(row) + "\n")
    found = pointwise_tables(rated(4), winner={"labels": str(path)})
    (row,) = lines(found["judge_accuracy.pointwise"])
    assert (row["pairs"], row["mean"]) == (16, 0.75)


def test_the_winner_may_be_that_of_an_order_of_the_models():
    ways = (["x", "y"], ["y", "x"])
    found = [pointwise_tables(rated(4), winner={"order": way}) for way in ways]
    (one,), (other,) = (lines(tables["judge_accuracy.pointwise"]) for tables in found)
    assert one["pairs"] == other["pairs"] == len(RIGHT)
    assert one["mean"] + other["mean"] == 1.0


def test_nothing_known_of_any_pair_is_said():
    with pytest.raises(UsageError, match="who is better"):
        pointwise_tables(rated(0), winner={"field": "no such column"})


@pytest.mark.parametrize("wrong", [{}, {"exact_match": True, "field": "better"}])
def test_there_is_one_way_to_know_the_winner(wrong):
    with pytest.raises(ValidationError):
        Winner(**wrong)


@pytest.mark.parametrize("key", ["judge_accuracy.pointwise", "judge_calibration"])
def test_a_judge_of_pairs_that_nobody_knows_of_hides_no_other(key):
    """Its numbers are undefined; those of the other judge are what they are alone."""
    known = rated(4)
    unknown = [judged.score_row("beyond", model, around(5), judge="late") for model in ("x", "y")]
    config = pointwise.Config(judges=("judge", "late"))
    both = Source("pointwise", "pointwise", pointwise.Kind(config), "scores")

    def found(rows, source):
        context = Context(
            "study", {"answers": ANSWERS, "items": ITEMS, "scores": judged.scores(rows)},
            pl.DataFrame(), [source], 0.95, 300, 0,
        )  # fmt: skip
        tables = JudgeAccuracyAnalysis(JudgedWinner()).summarise(context)
        (asked,) = (table for table in tables if table.key == key)
        return [list(line.values())[1:] for line in lines(asked)]

    first, second = found([*known, *unknown], both)
    assert [first] == found(known, source())
    assert 0 in second
