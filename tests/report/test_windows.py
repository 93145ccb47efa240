"""Screens that fit a terminal's window: live display, first screen, plan, a call's summary."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.report import calls
from orchestrator.report.brief import brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.lines import PlainPainter
from orchestrator.report.live import LivePainter, frame
from orchestrator.report.planned import Plan, StageCount
from orchestrator.report.progress import Completeness, Pace, StageProgress
from orchestrator.report.words import phrase
from tests.report.samples import Stream, a_model, a_progress, a_ranking, an_analysis, printed
from tests.report.windows import SIZES, Window, in_window

ALIKE = "meta-llama_Llama-3.1-70B-Instruct-with-a-very-long-description-of-the-tuning"
HARD = ("نموذج-كبير", "通义千问-72B-指令", "🦙llama", "Ψηφιακό-μοντέλο", "प्रतिरूप")
NAMES = (*HARD, *(f"{ALIKE}-v{i}-final" for i in range(25)))
MORE = ["In full (9 tables): orchestrator report runs/r --full", "A page: orchestrator report"]


def a_crowd(n=30, **changed):
    """A run of many models with hard names, of which one is down."""
    models = [a_model(name, units_left=5) for name in NAMES[:n]]
    models[-1] = a_model(NAMES[n - 1], state="down", failed=3)
    stages = tuple(StageProgress(f"{name}-stage", 10) for name in NAMES[:n])
    fields = {"models": tuple(models), "rankings": (a_ranking(NAMES[:n]),), "stages": stages}
    return a_progress(20.0, **{**fields, **changed})


def a_frame(progress, width, height):
    pace = Pace()
    pace.add(progress)
    return in_window(frame("thirty → runs/thirty", progress, pace), width, height)


@given(st.integers(1, 30), st.integers(72, 140), st.integers(20, 60))
@settings(max_examples=40, deadline=None)
def test_a_frame_is_never_larger_than_the_window(n, width, height):
    lines = a_frame(a_crowd(n), width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_frame_shows_models_in_trouble_and_counts_those_it_leaves_out(width, height):
    lines = a_frame(a_crowd(), width, height)
    assert sum("● down" in line for line in lines) == 1
    n_shown = sum(" ready" in line and "●" in line for line in lines) + 1
    (said,) = [line for line in lines if "more models:" in line]
    assert said.startswith(f"and {30 - n_shown} more models: {30 - n_shown} ready")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_names_in_a_frame_keep_what_differs(width, height):
    lines = a_frame(a_crowd(), width, height)
    names = [line.split("●")[0].strip() for line in lines if "● " in line]
    assert len(set(names)) == len(names)


def test_a_model_that_is_done_makes_room_for_one_that_works():
    models = tuple(a_model(f"m{i:02}", units_left=int(i >= 20)) for i in range(30))
    lines = a_frame(a_progress(models=models), 100, 24)
    assert any(line.startswith("m29 ") for line in lines)
    assert not any(line.startswith("m19 ") for line in lines)


def test_the_share_of_a_finished_run_stands_whole_behind_the_bar():
    done = a_progress(units_total=100, units_stored=100, units_done=0)
    for width in (80, 100, 120):
        line = a_frame(done, width, 40)[1]
        assert line.endswith("100.0 %")
        assert cell_len(line) <= width


def test_a_run_without_units_left_has_no_time_left():
    pace = Pace()
    done = a_progress(20.0, units_total=150, units_stored=100, units_done=50)
    pace.add(done)
    assert "ETA" not in printed(frame("t", done, pace))


@pytest.mark.parametrize(("width", "height"), [*SIZES, (80, 10)])
def test_the_live_display_leaves_nothing_but_its_notes(width, height, monkeypatch):
    """Also in a window that is too short for any frame, and when the last frame is the largest."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", str(height))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = Stream(tty=True)
    painter = LivePainter(stream)
    painter.start("thirty → runs/thirty", 1000)
    for n in (1, 30, 3):
        painter.update(a_crowd(n))
    painter.note(f"{'a server said no ' * 8}at last")
    painter.update(a_crowd(30))
    painter.stop()
    window = Window(stream.getvalue(), width, height)
    left = [line for line in (*window.scrolled, *window.lines) if line.strip()]
    assert " ".join(" ".join(left).split()) == f"{'a server said no ' * 8}at last"
    assert not window.is_hidden


def test_a_line_of_a_log_names_the_first_of_many_models():
    stream = Stream()
    painter = PlainPainter(stream)
    painter.update(a_crowd())
    (line,) = [line for line in stream.getvalue().splitlines() if "in flight" in line]
    assert line.count("in flight") == 8
    assert line.endswith(", down · and 22 more models")


@pytest.fixture(scope="module")
def thirty():
    analysis = an_analysis({name: 3.0 * i / 30 for i, name in enumerate(NAMES)}, n_items=12)
    return brief(rankings=[analysis], completeness=Completeness(1000, 900, 7), notes=["a note"])


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("taken", [0, 5])
def test_the_first_screen_fits_the_window_beside_what_stands_above(thirty, width, height, taken):
    lines = in_window(brief_text(thirty, MORE, taken=taken), width, height)
    assert len(lines) + taken < height
    assert max(map(cell_len, lines)) <= width
    assert lines[0].startswith("Incomplete: 100 of 1,000 units remain")
    assert "between" in "\n".join(lines)
    assert lines[-1].startswith(("In full", "A page"))


def test_a_small_window_names_the_checks_that_nothing_speaks_against():
    found = brief(rankings=[an_analysis()])
    lines = in_window(brief_text(found, MORE), 80, 20)
    assert any(line.startswith("  passed  form, order, missing") for line in lines)


def test_a_small_window_names_the_doubts_that_it_cannot_spell_out(thirty):
    lines = in_window(brief_text(thirty, MORE, taken=5), 80, 24)
    (doubtful,) = [line for line in lines if line.startswith("! doubtful")]
    spelt = {line[2:].split()[0] for line in lines if line.startswith("! ")} - {"doubtful"}
    named = set(doubtful.removeprefix("! doubtful").strip().split(", "))
    (first,) = thirty.questions
    checks = (*first.checks, *thirty.checks)
    assert spelt | named == {check.about for check in checks if check.is_doubtful}


def test_a_small_window_keeps_the_advice_about_a_judge_that_is_not_trusted():
    found = brief(rankings=[an_analysis(coverage=0.1)])
    (first,) = found.questions
    long = msgspec.structs.replace(first, detail="It is so. " * 40)
    steps = (phrase("Try another prompt."), *found.next_steps)
    found = msgspec.structs.replace(found, questions=(long,), next_steps=steps)
    lines = in_window(brief_text(found, MORE), 80, 16)
    assert "• Try another prompt." in lines
    assert any(line.startswith("! form") for line in lines)


def a_plan(n=30):
    stages = [
        StageCount("answers", name, 12, 0, 12, exact=True, max_tokens=288) for name in NAMES[:n]
    ]
    stages += [StageCount("judgments", "judge", 10_440, 0, 10_440, exact=False, max_tokens=0)]
    return Plan(12, 5580, tuple(stages), None, ())


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_plan_of_many_models_fits_the_window_by_stage(width, height):
    lines = in_window(calls.plan(a_plan()), width, height)
    assert len(lines) < height
    assert max(map(cell_len, lines)) <= width
    (answers,) = [line for line in lines if line.startswith("answers")]
    assert answers.split() == ["answers", "30", "models", "360", "0", "360", "≤", "8,640"]
    assert any(line == "Each model by itself: orchestrator plan RECIPE --json" for line in lines)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_plan_in_a_file_has_each_model_by_a_name_of_its_own(width):
    text = printed(calls.plan(a_plan()), width)
    rows = [line for line in text.splitlines() if line.startswith("answers")]
    assert len({row.split()[1] for row in rows}) == len(rows) == 30
    assert max(map(cell_len, text.splitlines())) <= width


def test_a_summary_in_a_window_shows_the_models_that_had_trouble():
    progress = a_crowd()
    lines = in_window(calls.summary(progress, 0), 80, 24)
    assert len([line for line in lines if line.endswith(" down")]) == 1
    assert "and 29 more models: orchestrator status runs/demo" in lines
    fine = a_crowd(models=tuple(a_model(name) for name in NAMES), failures={}, units_failed=0)
    assert len(in_window(calls.summary(fine, 0), 80, 24)) <= 4


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_summary_in_a_file_has_each_model_by_a_name_of_its_own(width):
    text = printed(calls.summary(a_crowd(), 0), width)
    table = text.split("\n\n")[-1].splitlines()[1:31]
    assert len({line.split()[0] for line in table}) == 30
    assert max(map(cell_len, table)) <= width


def test_a_count_of_nothing_is_not_said():
    text = printed(calls.summary(a_progress(asks_found=0, asks_joined=0), 0))
    assert "found in the store" not in text
    assert "joined" not in text
