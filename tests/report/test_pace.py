import pytest

from orchestrator.report.lines import rate_parts
from orchestrator.report.progress import Pace, tokens_of
from tests.report.samples import a_model, a_progress


def pace_of(*updates):
    pace = Pace()
    for update in updates:
        pace.add(update)
    return pace


def at(second, done):
    units = {"units_done": done, "units_left": 1000 - done}
    model = a_model(done=done, prompt_tokens=10 * done, completion_tokens=done, **units)
    return a_progress(float(second), units_stored=0, units_done=done, models=(model,))


def test_rates_are_unknown_at_first():
    assert pace_of(at(1, 5)).rates() == (None, None, None)


def test_rates_follow_the_last_seconds_not_the_mean():
    pace = pace_of(*(at(s, 0) for s in range(100)), *(at(100 + s, 20 * s) for s in range(16)))
    assert pace.rates() == (20.0, 200.0, 20.0)


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([(None, None)], (None, None)),
        ([(None, None), (30, 3)], (30, 3)),
        ([(30, None)], (30, None)),
        ([], (0, 0)),
        ([(0, 0)], (0, 0)),
    ],
)
def test_tokens_that_no_server_tells_are_unknown_and_not_zero(tokens, told):
    models = tuple(a_model(done=3, prompt_tokens=a, completion_tokens=b) for a, b in tokens)
    assert tokens_of(models) == told
    pace = pace_of(
        a_progress(1.0, models=(a_model(done=0, prompt_tokens=0, completion_tokens=0),)),
        a_progress(11.0, models=models),
    )
    per_s = [None if n is None else n / 10 for n in told]
    assert list(pace.rates()) == [0.3 * len(tokens), *per_s]
    words = " ".join(rate_parts(pace.rates()))
    assert ("tokens/s in" in words, "out" in words) == tuple(n is not None for n in told)


def test_a_model_that_is_not_there_has_no_requests():
    assert pace_of(at(1, 0), at(3, 4)).rates("other")[0] == 0.0


def test_the_end_is_judged_by_the_last_minute():
    pace = pace_of(*(at(s, 0) for s in range(100)), *(at(99 + s, 10 * s) for s in range(61)))
    assert pace.eta_s() == (1000 - 600) / 10


def test_a_minute_without_a_unit_falls_back_to_the_whole_call():
    pace = pace_of(*(at(s, 20 * s) for s in range(1, 11)), *(at(s, 200) for s in range(11, 80)))
    assert pace.eta_s() == pytest.approx(800 * 78 / 180)


def test_the_end_is_unknown_before_anything_is_done():
    assert pace_of(at(1, 0), at(2, 0)).eta_s() is None


def test_nothing_left_takes_no_time():
    assert pace_of(a_progress(units_stored=1000, units_done=0)).eta_s() == 0.0


def test_the_end_is_not_guessed_from_the_first_units():
    assert pace_of(at(1, 0), at(20, 1)).eta_s() is None
    assert pace_of(at(1, 0), at(20, 5)).eta_s() is not None


def slow_judge(second, *, n=1000, candidates_per_s=50.0, judge_per_s=0.5):
    """A run at a moment: two candidates that answer fast, and a judge that is slow."""
    answered = min(n, int(candidates_per_s * second))
    judged = min(answered, int(judge_per_s * second))
    models = (
        a_model("one", units_done=answered, units_left=n - answered),
        a_model("two", units_done=answered, units_left=n - answered),
        a_model("judge", units_done=judged, units_left=n - judged),
    )
    done = 2 * answered + judged
    return a_progress(
        float(second), units_total=3 * n, units_stored=0, units_done=done, models=models
    )


@pytest.mark.parametrize("judge_per_s", [5.0, 0.5, 0.05])
def test_a_slow_judge_decides_when_a_run_ends(judge_per_s):
    pace, end_s = Pace(), 1000 / judge_per_s
    for second in range(0, int(end_s), 1):
        pace.add(slow_judge(second, judge_per_s=judge_per_s))
        eta_s = pace.eta_s()
        if judge_per_s * second < 5:
            assert eta_s is None
        elif judge_per_s * second > 20:
            assert eta_s == pytest.approx(end_s - second, rel=0.2, abs=2 / judge_per_s)


def test_a_judge_that_begins_late_is_judged_by_its_own_time():
    pace, judged = Pace(), 0
    for second in range(0, 2000, 5):
        judged = max(0, (second - 1000) // 25)
        model = a_model("judge", units_done=judged, units_left=100 - judged)
        pace.add(
            a_progress(
                float(second), units_total=100, units_stored=0, units_done=judged, models=(model,)
            )
        )
    assert pace.eta_s() == pytest.approx(25 * (100 - judged), rel=0.1)
