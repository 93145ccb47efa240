"""A run held against requirements: verdicts by intervals, what they rest on, what is refused."""

import json
import re
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from scipy import stats

import orchestrator
from orchestrator import RunDirectoryError, StatisticsError, UsageError
from orchestrator.statistics.bounded_mean import intervals
from tests.api.made import METHODS, MODELS, recipe

ROWS = [{"question": f"Question {n}?", "answer": str(n)} for n in range(40)]
WORSE = {**MODELS, "strong": {"server": "scripted", "weights": "b:0.3"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gates")
    new = orchestrator.run(recipe(ROWS), run_dir=folder / "new")
    old = orchestrator.run(recipe(ROWS, models=WORSE), run_dir=folder / "old")
    return new, old


def verdicts(run, *requirements, **options):
    return [one.verdict for one in orchestrator.gate(run, requirements, **options).requirements]


def share(result):
    return np.mean(list(wins(result, "strong").values()))


def wins(result, model):
    """P(model wins) by item, from the rows of the one pair."""
    rows = result.frames["judgments"].select("item", "model_a", "prefer_a").iter_rows()
    return {item: p if a == model else 1 - p for item, a, p in rows}


def test_a_requirement_holds_fails_or_is_not_known_yet(runs):
    found = orchestrator.gate(
        runs[0],
        [
            "win_rate(strong, weak) > 1%",
            "win_rate(strong, weak) < 50%",
            f"win_rate(strong, weak) > {share(runs[0]):.4f}",
        ],
    )
    assert [one.verdict for one in found.requirements] == ["holds", "fails", "not known yet"]
    assert (found.verdict, found.exit_code) == ("fails", 4)
    assert orchestrator.gate(runs[0], ["win_rate(strong, weak) > 1%"]).exit_code == 0
    known = orchestrator.gate(runs[0], [f"win_rate(strong, weak) > {share(runs[0]):.4f}"])
    assert known.exit_code == 5


def test_each_interval_takes_an_equal_share_of_the_error(runs):
    text = "win_rate(strong, weak) > 0.1"
    one = orchestrator.gate(runs[0], [text])
    four = orchestrator.gate(runs[0], [text] * 4, confidence_level=0.9)
    alone = orchestrator.gate(runs[0], [text], confidence_level=0.975)
    assert [one.level, four.level] == pytest.approx([0.95, 0.975])
    wins_of = runs[0].rankings[0].wins
    at = wins_of.models.index("strong"), wins_of.models.index("weak")
    first = one.requirements[0]
    assert (first.low, first.high) == (wins_of.low[at[0]][at[1]], wins_of.high[at[0]][at[1]])
    ends = [(found.requirements[0].low, found.requirements[0].high) for found in (four, alone)]
    assert ends[0] == pytest.approx(ends[1])
    # Counts are exact, and take no share.
    assert orchestrator.gate(runs[0], [text, "failed() <= 0"]).level == 0.95


def test_a_mean_without_bounds_has_students_interval(tmp_path):
    given = recipe(ROWS, methods=[{"kind": "answers"}])
    run = orchestrator.run(given, run_dir=tmp_path / "answers")
    found = orchestrator.gate(run, ["score(weak) > -100"]).requirements[0]
    rows = run.frames["answers"].filter(pl.col("model") == "weak")
    expected = stats.ttest_1samp(rows["mean_logprob"].to_numpy(), 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_ratings_are_those_of_the_report(runs):
    (ranking,) = runs[0].rankings
    (pair,) = ranking.pairs
    found = orchestrator.gate(runs[0], [f"{pair.better} > {pair.worse}"]).requirements[0]
    assert (found.value, found.low, found.high) == pytest.approx(
        (pair.difference, pair.low, pair.high)
    )
    better = next(one for one in ranking.ratings if one.model == pair.better)
    found = orchestrator.gate(runs[0], [f"{pair.better} > 1000"]).requirements[0]
    assert (found.value, found.low, found.high) == pytest.approx(
        (better.rating, better.low, better.high)
    )


def test_a_difference_to_an_older_run_is_paired_by_item(runs):
    new, old = runs
    text = "score(strong) >= score(strong, old) - 0.02"
    found = orchestrator.gate(new, [text], against=old).requirements[0]
    mine, others = wins(new, "strong"), wins(old, "strong")
    differences = np.array([mine[item] - others[item] for item in mine])
    # Differences of preferences are from -1 to 1.
    shares = (1 + differences[None]) / 2
    expected = [2 * float(end[0]) - 1 for end in intervals(shares, np.ones_like(shares), 0.05)]
    assert found.value == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert found.verdict == ("holds" if expected[0] >= -0.02 else "not known yet")
    # The other way round it became worse.
    back = orchestrator.gate(old, [text], against=new).requirements[0]
    assert (back.low, back.high) == pytest.approx((-expected[1], -expected[0]))


def test_a_run_is_not_inferior_to_itself_and_not_shown_to_be_better(runs):
    found = orchestrator.gate(
        runs[0],
        ["score(strong) >= score(strong, old) - 0.02", "score(strong) >= score(strong, old)"],
        against=runs[0],
    )
    # So few prompts could have missed rare large losses: a margin of 0.02 is out of their reach.
    assert [one.verdict for one in found.requirements] == ["not known yet"] * 2
    assert all(one.value == 0 and (one.low or 0.0) < -0.02 for one in found.requirements)
    wide = orchestrator.gate(
        runs[0], ["score(strong) >= score(strong, old) - 0.5"], against=runs[0]
    )
    assert wide.verdict == "holds"


def test_only_opponents_of_both_runs_count(runs, tmp_path):
    models = {**MODELS, "third": {"server": "scripted", "weights": "c:0.99"}}
    more = orchestrator.run(recipe(ROWS, models=models), run_dir=tmp_path / "more")
    text = "score(strong) >= score(strong, old) - 0.02"
    found = orchestrator.gate(more, [text], against=runs[0]).requirements[0]
    # Its judgments against the third model lower its mean, but that is no change of the model.
    assert found.value == pytest.approx(0.0, abs=1e-9)


def test_ratings_of_two_runs_are_on_one_scale(runs):
    # The weak model is the same in both, and so the scale is common.
    found = orchestrator.gate(
        runs[0], ["strong > rating(strong, old)", "weak > rating(weak, old)"], against=runs[1]
    )
    rating, same = found.requirements
    shares = [np.mean(list(wins(run, "strong").values())) for run in runs]
    gaps = [400 * np.log10(share / (1 - share)) for share in shares]
    assert rating.value == pytest.approx(gaps[0] - gaps[1], abs=1e-3)
    assert (same.verdict, same.value) == ("not known yet", None)
    assert "has one rating" in same.why


def test_coverage_flips_and_missing_are_those_of_the_judges_verdict(runs):
    ((trust,),) = runs[0].trust.values()
    found = orchestrator.gate(
        runs[0], ["coverage(judge) > 0.5", "flips(judge) < 0.5", "missing(judge) <= 0"]
    )
    coverage, flips, missing = found.requirements
    assert coverage.value == pytest.approx(trust.coverage.mean)
    assert flips.value == pytest.approx(trust.flips.value)
    assert (missing.value, missing.verdict) == (0.0, "holds")


@pytest.fixture(scope="module")
def labelled(runs, tmp_path_factory):
    """A run with labels of 30 of 40 verdicts: people agree with the judge on all but two."""
    return with_labels(runs[0], 2, tmp_path_factory.mktemp("labelled"))


def with_labels(run, n_wrong, folder):
    preferred = list(wins(run, "strong").items())
    said = [
        f"{item},strong,weak,{'1' if (share > 0.5) != (at < n_wrong) else '2'}"
        for at, (item, share) in enumerate(preferred[:30])
    ]
    path = folder / "labels.csv"
    path.write_text("\n".join(["item,model_a,model_b,label", *said]) + "\n", encoding="utf-8")
    given = [{"kind": "selective", "labels": str(path), "risk": [0.3]}]
    return orchestrator.run(recipe(ROWS, analyses=given), run_dir=folder / "run")


def test_risk_is_that_of_the_verdicts_that_the_analysis_keeps(labelled):
    table = next(one for one in labelled.tables if one.key == "selective")
    _, kept, _, _, wrong, *_ = table.rows[0]
    found = orchestrator.gate(labelled, ["risk(judge) < 0.3", "risk(judge) > 0.3"])
    holds, fails = found.requirements
    assert [holds.verdict, fails.verdict] == ["holds", "fails"]
    alone = orchestrator.gate(labelled, ["risk(judge) < 0.3"]).requirements[0]
    assert alone.value == pytest.approx(wrong)
    assert alone.low is not None
    assert alone.high is not None
    assert alone.low < wrong < alone.high <= 0.3
    assert f"of the surest {100 * kept:.0f} % of the verdicts" in alone.why
    assert alone.n == 30


def test_a_risk_that_labels_do_not_show_is_not_known_yet(labelled):
    found = orchestrator.gate(labelled, ["risk(judge) < 0.02"])
    assert (found.verdict, found.exit_code) == ("not known yet", 5)
    assert "labelled items would do" in found.requirements[0].why or found.requirements[0].value
    assert verdicts(labelled, "risk(judge) < 1.5") == ["not known yet"]


def test_a_risk_fails_where_the_surest_verdicts_are_wrong_too(runs, tmp_path):
    found = orchestrator.gate(with_labels(runs[0], 30, tmp_path), ["risk(judge) < 0.02"])
    assert found.verdict == "fails"
    assert (found.requirements[0].low or 0.0) > 0.02


def test_a_risk_without_labels_is_refused(runs):
    with pytest.raises(UsageError, match="no analysis of kind selective that is about 'judge'"):
        orchestrator.gate(runs[0], ["risk(judge) < 0.1"])


def test_judges_agree_as_their_verdicts_do(tmp_path):
    models = {**MODELS, "other": {"server": "scripted", "weights": "k:0.2"}}
    methods = [{**METHODS[0], "judges": ["judge", "other"]}]
    run = orchestrator.run(recipe(ROWS, models=models, methods=methods), run_dir=tmp_path / "two")
    rows = run.frames["judgments"].select("item", "judge", "mean_pre").iter_rows()
    signs = {(item, judge): np.sign(value) for item, judge, value in rows}
    items = {item for item, _ in signs}
    same = np.mean([signs[item, "judge"] == signs[item, "other"] for item in items])
    found = orchestrator.gate(run, ["agreement(judge, other) > 0", "kappa(judge, other) > 0.99"])
    assert found.requirements[0].value == pytest.approx(same)
    assert found.requirements[1].verdict in ("fails", "not known yet")
    assert verdicts(run, "score(strong, judge=judge) > score(strong, judge=other) - 2") == ["holds"]


def test_nothing_is_decided_of_a_run_that_is_not_complete(runs, tmp_path):
    # A plan of more items than have rows.
    part = orchestrator.run(recipe(ROWS), run_dir=tmp_path / "part", limit=4)
    part.completeness = type(part.completeness)(total=100, ended=4)
    found = orchestrator.gate(part, ["win_rate(strong, weak) > 1%"])
    assert found.verdict == "not known yet"
    assert "Incomplete" in found.requirements[0].why


def test_nothing_is_decided_by_a_judge_that_cannot_be_trusted(tmp_path):
    rules = [{"route": "choose", "judge_first": True}]
    judge = {"server": {"kind": "scripted", "rules": rules}, "weights": "j:1.0"}
    given = recipe(ROWS, models={**MODELS, "judge": judge})
    run = orchestrator.run(given, run_dir=tmp_path / "bad")
    found = orchestrator.gate(
        run, ["strong > weak", "score(strong) > 0.1", "coverage(judge) > 0.1"]
    )
    assert [one.verdict for one in found.requirements] == ["not known yet"] * 2 + ["holds"]
    assert "No ranking" in found.requirements[0].why


def test_the_forms_carry_the_runs_metadata(runs):
    found = orchestrator.gate(
        runs[0], ["strong > weak", "win_rate(strong, weak) < 50%"], against=runs[1]
    )
    said = json.loads(found.to_json())
    assert said["verdict"] == "fails"
    assert said["run"]["name"] == "made"
    assert said["run"]["complete"] is True
    assert said["against"]["run"] == str(runs[1].path)
    assert [one["verdict"] for one in said["requirements"]] == ["holds", "fails"]
    suite = ET.fromstring(found.to_junit()).find("testsuite")  # noqa: S314 (our own)
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    names = [case.get("name") for case in suite.iter("testcase")]
    assert names == ["strong > weak", "win_rate(strong, weak) < 50%"]
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["run.name"] == "made"
    assert "| strong &gt; weak | ✅ holds |" in found.to_markdown()


def test_what_is_not_known_yet_is_an_error_or_skipped_in_junit(runs):
    found = orchestrator.gate(runs[0], [f"win_rate(strong, weak) > {share(runs[0]):.4f}"])
    assert 'errors="1" skipped="0"' in found.to_junit()
    assert 'errors="0" skipped="1"' in found.to_junit(pass_unknown=True)


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        ("strong > waek", "column 10: unknown model 'waek'; did you mean 'weak'?"),
        ("coverage(strong) > 0.9", "column 10: unknown judge 'strong'"),
        ("score(strong, method=pairwse) > 0", "unknown method 'pairwse'; did you mean"),
        ("score(strong, method=pairwise_ranking.x) > 0", "no score 'pairwise_ranking.x'"),
        ("score(strong) >= score(strong, old)", "--against"),
        ("win_rate(strong, strong) > 0.5", "named twice"),
        ("strong", "expected a comparison"),
    ],
)
def test_what_makes_no_sense_is_refused(runs, requirement, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        orchestrator.gate(runs[0], [requirement])


def test_other_rubbish_is_refused(runs, tmp_path):
    with pytest.raises(UsageError, match="no requirement"):
        orchestrator.gate(runs[0])
    with pytest.raises(UsageError, match="no requirement"):
        orchestrator.gate(runs[0], [])
    with pytest.raises(StatisticsError):
        orchestrator.gate(runs[0], ["strong > weak"], confidence_level=1.5)
    with pytest.raises(StatisticsError):
        orchestrator.gate(runs[0], ["strong > weak"], confidence_level=0.0)
    with pytest.raises(RunDirectoryError):
        orchestrator.gate(tmp_path / "nowhere", ["strong > weak"])


def test_the_recipes_own_gates_are_used(tmp_path):
    given = recipe(ROWS, gates=["win_rate(strong, weak) > 1%"])
    run = orchestrator.run(given, run_dir=tmp_path / "own")
    assert verdicts(run.path, *run.settings["gates"]) == ["holds"]
    assert orchestrator.gate(run.path).verdict == "holds"
