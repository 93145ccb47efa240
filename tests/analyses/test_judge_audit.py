import numpy as np
import polars as pl
import pytest

from orchestrator.analyses import style_control
from orchestrator.analyses.judge_audit import Config, JudgeAuditAnalysis
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking, pointwise
from tests.core.fakes import method_in
from tests.summaries import judged, styled
from tests.tables import lines

MODELS = ("x", "y", "z")


def tables(pair_rows, score_rows=()):
    frames, sources = {}, []
    for module, rows in ((pairwise_ranking, pair_rows), (pointwise, score_rows)):
        if rows:
            method = method_in(module)(module.Config(judges=("judge",)))
            name = rows[0]["method"]
            frames[method.frame] = judged.frame(module, list(rows))
            sources.append(Source(name, name, method, method.frame))
    context = Context("judge_audit", frames, pl.DataFrame(), sources, 0.95, 200, 0)
    return {t.key: t for t in JudgeAuditAnalysis(Config()).summarise(context)}


def pair(item, a, b, share):
    p = judged.leaning(share)
    return judged.pair_row(item, a, b, p, p[::-1])


def around(n_items=20):
    return [
        pair(f"i{k}", a, b, 0.9 if (a, b) != ("x", "z") else 0.1)
        for k in range(n_items)
        for a, b in (("x", "y"), ("y", "z"), ("x", "z"))
    ]


def ordered(n_items=20, seed=0):
    rng = np.random.default_rng(seed)
    seen = [
        {m: s + rng.normal(0, 0.05) for m, s in zip(MODELS, (0.15, 0.0, -0.15), strict=True)}
        for _ in range(n_items)
    ]
    pairs = [row for k, said in enumerate(seen) for row in judged.all_pairs(f"i{k}", said)]
    scores = [
        judged.score_row(f"i{k}", m, judged.around(5 + 10 * s))
        for k, said in enumerate(seen)
        for m, s in said.items()
    ]
    return pairs, scores


def test_a_judge_that_goes_round_in_circles_is_found_out():
    (row,) = lines(tables(around())["judge_audit"])
    assert (row["triples"], row["cycles"].value) == (20, 1.0)
    assert row["by chance"] == pytest.approx(0.25)
    assert row["excess"].low > 0.5


def test_a_judge_with_one_order_has_no_cycles():
    pairs, _ = ordered()
    (row,) = lines(tables(pairs)["judge_audit"])
    assert row["cycles"].value == 0.0


def test_scores_of_what_a_judge_prefers_are_higher():
    pairs, scores = ordered()
    (row,) = lines(tables(pairs, scores)["judge_audit.scores"])
    assert (row["judge"], row["pairs"]) == ("judge", 60)
    assert row["same side"].value == 1.0
    assert row["tau-b"].value > 0.9


def test_the_sides_of_a_pair_are_matched():
    pairs, scores = ordered()
    backwards = [{**row, "model": {"x": "z", "z": "x"}.get(row["model"], "y")} for row in scores]
    (row,) = lines(tables(pairs, backwards)["judge_audit.scores"])
    assert row["same side"].value == 0.0


def of_frames(frames):
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=("judge",)))
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    context = Context("judge_audit", frames, pl.DataFrame(), [source], 0.95, 200, 0)
    return {t.key: t for t in JudgeAuditAnalysis(Config()).summarise(context)}


def lengths(texts, bias=0.0, **more):
    return of_frames(styled.frames(texts, bias, **more))["judge_audit.length"]


def test_a_love_of_length_is_told_from_the_skill_of_models_that_write_much():
    (row,) = lines(lengths(styled.padded, bias=0.2, n_items=60))
    assert row["pairs"] == 180
    assert row["prefers the longer"].low > 0.5
    assert row["effect"].low > 0
    assert row["against an equal answer"].low > 0.5
    assert row["p"] < 0.001


def test_models_that_are_better_and_write_more_are_no_love_of_length():
    def texts(model, k, rng):
        return "w" * int({"x": 200, "y": 60, "z": 20}[model] * rng.uniform(0.4, 1.6))

    (row,) = lines(lengths(texts, n_items=60))
    assert row["prefers the longer"].low > 0.5
    assert row["effect"].low < 0 < row["effect"].high


def test_the_effect_of_length_is_that_of_style_control():
    frames = styled.frames(styled.padded, 0.2)
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=("judge",)))
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    context = Context("style_control", frames, pl.DataFrame(), [source], 0.95, 200, 0)
    control = style_control.StyleControlAnalysis(style_control.Config(features=("length",)))
    by_key = {t.key: t for t in control.summarise(context)}
    (effect,) = lines(by_key["style_control.effects"])
    (row,) = lines(lengths(styled.padded, 0.2))
    assert row["effect"] == effect["effect"]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (lambda model, k, rng: "w" * {"x": 9, "y": 99, "z": 999}[model], "fix it"),
        (lambda model, k, rng: "same", "differ in it on no prompt"),
    ],
)
def test_where_length_has_no_effect_of_its_own_it_says_why(texts, why):
    table = lengths(texts)
    (row,) = lines(table)
    assert (row["effect"], row["p"]) == (None, None)
    assert why in table.notes[-1]


def test_a_run_without_texts_says_so():
    table = tables(around())["judge_audit.length"]
    assert table.rows == ()
    assert table.notes[-1] == "pairwise_ranking: the run has no answers"


def test_models_without_a_finite_rating_have_no_effect_of_length():
    frames = styled.frames(lambda model, k, rng: "w" * int(rng.integers(1, 99)))
    (name,) = set(frames) - {"answers"}
    frames[name] = frames[name].with_columns(prefer_a=pl.lit(1.0), mean_pre=pl.lit(1.0))
    table = of_frames(frames)["judge_audit.length"]
    (row,) = lines(table)
    assert (row["effect"], row["p"]) == (None, None)
    assert any("no finite rating" in note for note in table.notes)


def test_two_models_have_no_triples():
    found = tables([pair(f"i{k}", "x", "y", 0.9) for k in range(5)])
    assert list(found) == ["judge_audit.length"]


def test_without_a_judged_pair_there_is_no_audit():
    row = {**pair("i0", "x", "y", 0.9), "same_text": True}
    with pytest.raises(UsageError, match="no judge judged two different answers"):
        tables([row])


def rated(gold, config, n_items=60):
    """Tables of intervals for ratings of 1 to 9 by three models, with gold by item and model."""
    rng = np.random.default_rng(5)
    pairs, rows, fields = [], [], []
    for k in range(n_items):
        scores = {m: float(rng.integers(3, 8)) for m in MODELS}
        pairs += judged.all_pairs(f"i{k}", {m: s / 30 for m, s in scores.items()})
        rows += [judged.score_row(f"i{k}", m, judged.around(s)) for m, s in scores.items()]
        given = gold(scores["x"], rng)
        fields.append({"item": f"i{k}", "fields": None if given is None else f'{{"g": {given}}}'})
    frames, sources = {"items": pl.DataFrame(fields)}, []
    for module, some in ((pairwise_ranking, pairs), (pointwise, rows)):
        method = method_in(module)(module.Config(judges=("judge",)))
        frames[method.frame] = judged.frame(module, some)
        sources.append(Source(some[0]["method"], some[0]["method"], method, method.frame))
    context = Context("judge_audit", frames, pl.DataFrame(), sources, 0.95, 200, 0)
    settings = Config(ratings={"gold": {"field": "g"}, **config})
    return {t.key: t for t in JudgeAuditAnalysis(settings).summarise(context)}


def by_kind(found):
    return {row["interval"]: row for row in lines(found["judge_audit.ratings"])}


def test_intervals_of_ratings_reach_as_far_as_gold_is_away():
    # Gold is what x gets, so that answers of x are off by at most 1 and those of y and z by more.
    found = by_kind(rated(lambda score, rng: score + rng.integers(-1, 2), {"coverage": 0.8}))
    assert list(found) == ["score ± reach", "distribution", "line (CV+)"]
    assert found["score ± reach"]["reach"] == pytest.approx(3.0)
    assert found["score ± reach"]["mean length"] == pytest.approx(6.0)
    # Quantiles of `judged.around` at 10 % are one score away from the middle on both sides.
    assert found["distribution"]["reach"] == pytest.approx(2.0)
    assert found["score ± reach"]["holds gold"].value > 0.8


def test_a_line_makes_up_for_another_scale():
    found = by_kind(rated(lambda score, rng: 100 + score / 100, {}))
    assert found["score ± reach"]["mean length"] > 180
    assert found["line (CV+)"]["mean length"] < 0.1
    assert found["line (CV+)"]["reach"] is None


def test_ends_are_labels_of_the_scale():
    found = by_kind(rated(lambda score, rng: round(score / 2), {"scale": [1, 5], "step": 1}))
    length = found["score ± reach"]["mean length"]
    assert length <= 4
    assert length * 180 == pytest.approx(round(length * 180))


def test_a_model_whose_answers_are_misrated_is_shown():
    found = rated(lambda score, rng: score, {"coverage": 0.5})
    x, *others = lines(found["judge_audit.ratings.models"])
    assert x["score minus gold"].value == pytest.approx(0.0)
    assert x["score ± reach"].value == 1.0
    assert all(one["score ± reach"].value < 0.7 for one in others)


def test_too_few_prompts_with_gold_give_no_interval():
    found = by_kind(
        rated(lambda score, rng: score if rng.uniform() < 0.1 else None, {}, n_items=40)
    )
    row = found["score ± reach"]
    assert row["with gold"] < 27
    assert row["reach"] is None
    assert "needs gold of 9 prompts" in row["mean length"].why
    assert row["holds gold"].value is None


def test_gold_off_the_scale_is_refused():
    with pytest.raises(UsageError, match=r"gold 3.5 is not on the scale from 1 to 9 by steps of 1"):
        rated(lambda score, rng: 3.5, {"scale": [1, 9], "step": 1})


def test_settings_of_intervals_are_checked_with_the_recipe():
    for config in ({"scale": [5, 1]}, {"step": 1}, {"coverage": 1.0}):
        with pytest.raises(ValueError, match=r"lesser first|needs 'scale'|less than 1"):
            Config(ratings={"gold": {"field": "g"}, **config})


def test_comparisons_alone_have_no_ratings():
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=("judge",)))
    items = pl.DataFrame([{"item": "i0", "fields": '{"g": 1}'}])
    frames = {method.frame: judged.frame(pairwise_ranking, around()), "items": items}
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    context = Context("judge_audit", frames, pl.DataFrame(), [source], 0.95, 200, 0)
    with pytest.raises(UsageError, match="no judge rated single answers"):
        JudgeAuditAnalysis(Config(ratings={"gold": {"field": "g"}})).summarise(context)
