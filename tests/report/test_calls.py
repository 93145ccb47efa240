import msgspec
import pytest
from rich.cells import cell_len

from orchestrator.errors import Fault, LaunchError, RecipeError
from orchestrator.report import calls
from orchestrator.report.planned import Plan, StageCount
from tests.report.samples import a_model, a_progress, printed


def a_plan(*, money=None, left=600):
    stages = (
        StageCount("answers", "expert", 400, 100, 300, True, 153_600),  # noqa: FBT003
        StageCount("judgments", "judge", 1200, 1200 - left, left, False, 0),  # noqa: FBT003
    )
    return Plan(200, 600, stages, money, ("at most: equal answers reduce the number …",))


def test_a_bound_is_marked_and_so_is_its_sum():
    rows = [line.split("  ") for line in printed(calls.plan(a_plan())).splitlines()]
    cells = {row[0]: [cell.strip() for cell in row if cell.strip()] for row in rows}
    assert cells["answers"] == ["answers", "expert", "400", "100", "300", "≤ 153,600"]
    assert cells["judgments"] == ["judgments", "judge", "≤ 1,200", "600", "≤ 600", "0"]
    assert cells["total"] == ["total", "≤ 1,600", "700", "≤ 900", "≤ 153,600"]


def test_rows_of_two_methods_that_ask_the_same_judge_name_the_method():
    stages = tuple(
        StageCount("judgments", "judge", total, 0, total, False, 0, method=method)  # noqa: FBT003
        for method, total in (("pairwise_ranking", 1200), ("pointwise", 400))
    )
    count = Plan(200, 600, stages, None, ())
    for width in (80, 100):
        lines = printed(calls.plan(count), width).splitlines()
        rows = {line.split()[0]: line.split()[1:5] for line in lines if "≤" in line}
        assert rows["total"] == ["≤", "1,600", "0", "≤"]
        assert rows["pointwise"] == ["judgments", "judge", "≤", "400"]
        assert any(name.startswith("pairw") and name.endswith("ing") for name in rows)


def test_where_every_row_differs_no_method_is_named():
    assert "method" not in printed(calls.plan(a_plan()))


def test_money_that_is_not_known_is_not_zero():
    assert "Money: unknown" in printed(calls.plan(a_plan()))


def test_money_is_a_bound():
    assert "Money: at most 12.40" in printed(calls.plan(a_plan(money=12.4)))


def test_a_plan_says_what_will_be_copied_from_other_runs():
    stage = StageCount("answers", "expert", 400, 400, 0, True, 0)  # noqa: FBT003
    reused = (("../first", 250), ("\x1b[31mred", 3))
    text = printed(calls.plan(Plan(200, 400, (stage,), None, (), reused=reused)))
    assert "Nothing to request: the store, or another run, holds every outcome." in text
    assert "250 of those held will be copied from ../first" in text
    assert "\x1b[31m" not in text


def test_a_summary_says_what_was_copied_from_other_runs():
    progress = a_progress(asks_copied={"../first": 1200, "\x1b[31mred": 3})
    text = " ".join(printed(calls.summary(progress, 0)).split())
    assert "1,200 copied from ../first" in text
    assert "\x1b[31m" not in text


def test_a_plan_that_is_held_asks_nothing():
    stage = StageCount("answers", "expert", 400, 400, 0, True, 0)  # noqa: FBT003
    text = printed(calls.plan(Plan(200, 400, (stage,), None, ())))
    assert "Nothing to request: the store holds every outcome." in text


def test_the_summary_of_a_complete_run():
    text = printed(calls.summary(a_progress(50.0, units_failed=0, failures={}), 0))
    assert text.startswith("Complete in 50 s · 1,000 units · 100 stored before · 50 done now\n")
    assert "60 requests sent · 30 found in the store · 4 joined to requests in flight" in text
    assert "0.2 requests/s" in text


@pytest.mark.parametrize("changes", [{"elapsed_s": 0.0}, {"requests_sent": 0}])
def test_a_call_that_took_no_time_or_sent_nothing_has_no_rate(changes):
    progress = msgspec.structs.replace(a_progress(50.0), **changes)
    assert "requests/s" not in printed(calls.summary(progress, 0))


def test_the_summary_of_a_run_with_failures_names_the_causes():
    text = printed(calls.summary(a_progress(50.0), 0))
    assert text.startswith("Finished, 2 units failed in 50 s")
    assert "failed units · timeout 2" in text


def test_the_summary_of_an_interrupted_run_says_how_much_is_left():
    text = printed(calls.summary(a_progress(50.0, stopping="interrupted"), 850))
    assert text.startswith("Interrupted, 850 units left in 50 s")
    assert text.count("850") == 1


def test_the_summary_of_a_call_with_nothing_to_do():
    assert "nothing left to do" in printed(calls.summary(None, 0))


def test_a_model_that_died_is_pointed_out():
    progress = a_progress(models=(a_model(state="dead"),))
    assert "dead" in printed(calls.summary(progress, 3))


def test_faults_of_a_recipe_stand_one_by_one():
    error = RecipeError([Fault("r.yaml", 8, "no such key"), Fault("r.yaml", 2, "[b]twice[/]")])
    assert printed(calls.faults(error)).splitlines() == [
        "2 errors in the recipe",
        "r.yaml:2: [b]twice[/]",
        "r.yaml:8: no such key",
    ]


def test_the_lines_of_an_error_stay_lines_and_obey_nothing():
    error = LaunchError("did not become ready\n\x1b[31mCUDA out of memory")
    text = printed(calls.faults(error))
    assert text == "did not become ready\n\\x1b[31mCUDA out of memory"


def test_a_status_says_that_a_run_is_dead():
    values = {**msgspec.to_builtins(a_progress()), "is_alive": False, "age_s": 90.0}
    assert "runs/demo: stopped 1 min 30 s ago" in printed(calls.status(values))


def test_a_status_says_that_a_run_runs():
    assert "runs/demo: running" in printed(calls.status(msgspec.to_builtins(a_progress())))


def test_runs_are_listed_with_what_is_known():
    text = printed(calls.runs([{"path": "runs/a", "units_done": 5, "units_total": 9, "size": 2e6}]))
    assert "5 of 9" in text
    assert "2.0 MB" in text


def test_no_runs_is_said():
    assert printed(calls.runs([])) == "no runs found"


def test_a_listing_has_a_line_each_and_loses_no_word():
    text = printed(calls.listing([("pairwise_ranking", "A judge compares."), ("x", "y" * 300)]), 60)
    assert text.splitlines()[0] == "pairwise_ranking  A judge compares."
    assert text.splitlines()[1].startswith("x ")
    assert text.count("y") == 300


@pytest.mark.parametrize("width", [50, 60, 100])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_terminal_shows_plan_and_summary(width, encoding):
    model = a_model("meta-llama/Llama-3.1-8B-Instruct")
    for shown in (calls.plan(a_plan()), calls.summary(a_progress(models=(model,)), 3)):
        text = printed(shown, width, encoding)
        text.encode(encoding)
        assert max(cell_len(line) for line in text.splitlines()) <= width
