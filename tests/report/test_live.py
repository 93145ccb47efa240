import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator import numbers
from orchestrator.report.live import frame
from orchestrator.report.progress import Pace, StageProgress
from tests.report.samples import a_model, a_progress, a_ranking, printed


def framed(progress, width=100, encoding="utf-8"):
    pace = Pace()
    pace.add(a_progress(progress.elapsed_s - 2, units_done=0, models=()))
    pace.add(progress)
    return printed(frame("demo → runs/demo", progress, pace), width, encoding)


def test_a_frame_says_where_the_units_are():
    assert "150 of 1,000 units · 100 stored · 2 failed · 8 open" in framed(a_progress(20.0))


def test_a_frame_says_how_fast_it_goes_and_when_it_ends():
    text = framed(a_progress(20.0, models=(a_model(units_done=50, units_left=850),)))
    assert "5.0 requests/s" in text
    assert "0:00:20 · ETA 34 s" in text


def test_a_frame_has_a_line_for_each_model():
    text = framed(a_progress(models=(a_model("one"), a_model("two", state="dead"))))
    assert "one    ● ready" in text
    assert "two    ✕ dead" in text


def test_a_frame_says_what_an_interrupt_does():
    assert "Press Ctrl-C to stop" in framed(a_progress())


def test_a_stopping_run_says_why_and_what_a_second_interrupt_does():
    text = framed(a_progress(stopping="interrupted"))
    assert "Stopping: interrupted · 3 requests in flight" in text
    assert "Press Ctrl-C again to abandon" in text
    assert "ETA" not in text


def test_a_run_is_not_said_to_be_complete_before_it_is():
    text = framed(a_progress(units_total=100_000, units_stored=99_998, units_done=1))
    assert "99.9 %" in text


def test_one_failed_unit_of_a_million_is_still_seen():
    text = framed(a_progress(units_total=10**6, units_stored=0, units_failed=1, units_done=1))
    assert "┅" in text


@given(
    st.tuples(*[st.sampled_from([0, 1]) | st.integers(0, 1000)] * 4).filter(any),
    st.integers(0, 9),
    st.sampled_from([(40, "utf-8", "╍━┅─"), (60, "ascii", "=-x."), (150, "utf-8", "╍━┅─")]),
)
@example((1000, 1, 1, 0), 0, (40, "utf-8", "╍━┅─"))
@example((1000, 1, 1, 1), 0, (40, "utf-8", "╍━┅─"))
def test_the_parts_of_the_bar_are_shares_of_its_width(counts, n_not_needed, shown):
    stored, good, failed, _ = counts
    width, encoding, signs = shown
    progress = a_progress(
        units_total=sum(counts) + n_not_needed, units_not_needed=n_not_needed,
        units_stored=stored, units_done=good + failed, units_failed=failed,
    )  # fmt: skip
    lines = framed(progress, width, encoding).splitlines()
    (bar,) = (line.split()[0] for line in lines if re.search(r"\S  +[0-9.]+ %$", line))
    cells = [bar.count(sign) for sign in signs]
    assert bar == "".join(sign * n for sign, n in zip(signs, cells, strict=True))
    assert len(bar) == min(width - len("  100.0 %"), 100)
    for n, part in zip(cells, counts, strict=True):
        # Rounded, and each other part may have taken a cell so as to be seen.
        assert abs(n - len(bar) * part / sum(counts)) < 4
        assert n > 0 or not part


def test_a_frame_shows_the_ranking_as_it_forms():
    text = framed(a_progress(rankings=(a_ranking(),)))
    assert "pairwise after 40 prompts · expert 1,100 · novice 900 ± 13" in text


def test_a_frame_shows_money_only_where_models_have_a_price():
    assert "12.35 spent" in framed(a_progress(money=12.345))
    assert "spent" not in framed(a_progress())


def test_a_frame_says_how_far_each_method_is():
    stages = (StageProgress("answers", 300, 100, 50, 2), StageProgress("pairs", 900))
    text = framed(a_progress(stages=stages))
    assert "answers 150 of 300, 2 failed · pairs 0 of 900" in text


def test_a_wide_frame_says_what_servers_say_of_themselves():
    models = (a_model("one", waiting=17, cache_hits=0.832), a_model("two"))
    text = framed(a_progress(models=models), width=130)
    one, two = (line.split() for line in text.splitlines() if line.startswith(("one", "two")))
    assert one[-2:] == ["17", "83%"]
    assert two[-2:] == [numbers.UNDEFINED] * 2


def test_a_paused_frame_says_how_to_go_on_and_names_no_end():
    text = framed(a_progress(20.0, paused=True))
    assert "Continue with `orchestrator resume`" in text
    assert "ETA" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_frame_fits_every_terminal(width, encoding):
    models = (a_model("meta-llama/Llama-3.1-8B-Instruct"), a_model("日本語モデル", state="down"))
    rankings = (a_ranking([model.name for model in models] * 4),)
    progress = a_progress(models=models, rankings=rankings, money=1234.5, paused=True)
    text = framed(progress, width, encoding)
    text.encode(encoding)
    assert max(cell_len(line) for line in text.splitlines()) <= width
