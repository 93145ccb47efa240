"""Data of the page, without a browser."""

import csv
import errno
import io
import os
from pathlib import Path

import polars as pl
import pytest

import orchestrator
from orchestrator.report.html import page as report_page
from orchestrator.runner.results import tables
from tests.report import hostile
from tests.view.runs import SETTINGS, answers_frame, items_frame, made, make_run
from tests.view.test_answers import JUDGES, MODELS, PAIRS
from tests.view.test_answers import made as compared_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made(folder / "made")
    return folder


@pytest.fixture
def opened(viewer, runs):
    return viewer(runs).enter()


def items(viewer, query=""):
    return viewer.json(f"/api/runs/made/items?{query}")


def indices(found):
    return [row["index"] for row in found["rows"]]


def test_runs_are_listed_with_what_they_are(opened):
    (run,) = opened.json("/api/runs")["runs"]
    assert (run["name"], run["recipe"], run["methods"]) == ("made", "made", ["answers"])


def test_a_run_can_be_named_itself(viewer, tmp_path):
    path = made(tmp_path / "made")
    found = viewer(path).enter().json("/api/runs")
    assert found["single"] == "made"
    assert len(found["runs"]) == 1


def test_an_empty_folder_has_no_runs(viewer, tmp_path):
    assert viewer(tmp_path).enter().json("/api/runs")["runs"] == []


def test_a_numbered_run_beside_it_is_another_run(viewer, tmp_path):
    made(tmp_path / "runs" / "made", 10)
    assert made(tmp_path / "runs" / "made", 20).name == "made.2"
    opened = viewer(tmp_path / "runs").enter()
    assert [opened.json(f"/api/runs/{name}/items")["of"] for name in ("made", "made.2")] == [10, 20]


def test_items_come_in_stretches(opened):
    found = items(opened, "offset=10&limit=5")
    assert indices(found) == [10, 11, 12, 13, 14]
    assert (found["total"], found["of"]) == (60, 60)


@pytest.mark.parametrize("given", ["offset=-1&limit=x", "offset=99999999999", "limit=1e3"])
def test_nonsense_stretches_do_no_harm(opened, given):
    assert len(items(opened, given)["rows"]) <= 100


def test_items_are_filtered_by_category_and_measure(opened):
    found = items(opened, "category=c1&where=answers.mean_logprob<-1.5")
    assert indices(found)
    assert all(row["category"] == "c1" for row in found["rows"])
    assert all(row["answers.mean_logprob"] < -1.5 for row in found["rows"])


def test_items_are_sorted_either_way_with_ties_in_their_order(opened):
    down = items(opened, "sort=-answers.mean_logprob&limit=60")["rows"]
    values = [row["answers.mean_logprob"] for row in down]
    assert values == sorted(values, reverse=True)
    up = items(opened, "sort=answers.mean_logprob&limit=60")["rows"]
    assert [row["answers.mean_logprob"] for row in up] == sorted(values)
    first = [row["index"] for row in up if row["answers.mean_logprob"] == values[-1]]
    assert first == sorted(first)


@pytest.mark.parametrize(
    "query", ["sort=nothing", "where=nothing>3", "where=failed>x", "where=failed"]
)
def test_what_is_not_understood_is_said(opened, query):
    reply = opened.get(f"/api/runs/made/items?{query}")
    assert reply.status_code == 400
    assert "nothing" in reply.json()["error"] or "failed" in reply.json()["error"]


def test_failed_rows_are_counted(opened):
    assert indices(items(opened, "where=failed>0")) == [49]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("says+1519", [49]),
        ("SAYS+1519", [49]),
        ("%22what+is+7+and%22", [7]),
        ("i59", [59]),
        ("nowhere-to-be-found", []),
        ("one+nowhere-to-be-found", []),
    ],
)
def test_search_finds_words_parts_of_words_and_phrases(opened, query, expected):
    assert indices(items(opened, f"q={query}")) == expected


def test_blank_searches_find_everything(opened):
    for query in ("", "+", "%22%22"):
        assert items(opened, f"q={query}")["total"] == 60


def test_an_item_has_its_texts_and_its_neighbours(opened):
    page = opened.json("/api/runs/made/items/3?category=c0")
    assert page["key"] == "i3"
    assert page["about"]["prompts"] == ["What is 3 and 21?"]
    assert [one["model"] for one in page["answers"]] == ["one", "two"]
    assert page["around"] == {"place": 1, "total": 20, "before": 0, "after": 6}


def test_an_item_outside_of_what_is_wanted_has_no_neighbours(opened):
    around = opened.json("/api/runs/made/items/3?category=c1")["around"]
    assert (around["place"], around["before"], around["after"]) == (None, None, None)


def test_there_is_no_item_after_the_last(opened):
    assert opened.get("/api/runs/made/items/60").status_code == 404


def test_a_missing_run_is_said_to_be_missing(opened):
    assert opened.get("/api/runs/other").status_code == 404


@pytest.mark.slow
def test_the_overview_is_the_report(opened):
    found = opened.json("/api/runs/made/sections")
    assert "basis" in [key for key, _ in found["sections"]]
    assert "part-basis" in str(found["content"])
    assert "h-glance" not in str(found["content"])


def test_the_first_screen_waits_for_no_section_and_takes_what_is_kept(
    viewer, tmp_path, monkeypatch
):
    texts = {("i0", model): model for model in MODELS}
    path = compared_run(tmp_path / "runs" / "made", texts, {("i0", *PAIRS[0], JUDGES[0]): 0.9})
    assert len(orchestrator.load(path).rankings) > 0

    def never(*_, **__):
        raise AssertionError("what is kept, or stands below, is computed")

    monkeypatch.setattr(tables, "analyse", never)
    monkeypatch.setattr(report_page, "sections", never)
    found = viewer(tmp_path / "runs").enter().json("/api/runs/made")
    assert "h-glance" in str(found["content"])
    assert "part-basis" not in str(found["content"])


def test_what_is_wanted_is_exported_in_its_order(opened):
    reply = opened.get("/api/runs/made/export?form=csv&category=c2&sort=-index")
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert [row["item"] for row in rows] == [f"i{k}" for k in range(59, 0, -3)]
    assert rows[0]["prompt"] == "What is 59 and 413?"
    assert 'filename="made-items.csv"' in reply.headers["content-disposition"]


def test_exported_cells_are_no_formulas(viewer, tmp_path):
    prompts = ["=1+1", "+x", "-x", "@x", "fine"]
    frame = items_frame(5).with_columns(prompt=pl.Series(prompts))
    make_run(tmp_path / "runs" / "made", {"items": frame, "answers": answers_frame(5)}, SETTINGS)
    opened = viewer(tmp_path / "runs").enter()
    rows = list(csv.DictReader(io.StringIO(opened.get("/api/runs/made/export?form=csv").text)))
    assert [row["prompt"] for row in rows] == ["'=1+1", "'+x", "'-x", "'@x", "fine"]
    exact = opened.json("/api/runs/made/export?form=json")
    assert [row["prompt"] for row in exact] == prompts


def test_nothing_is_written_into_a_run(viewer, tmp_path):
    path = made(tmp_path / "runs" / "made")
    (path / "results" / ".exported").unlink()
    (path / "results" / "answers.parquet").unlink()

    def listing():
        # SQLite's own files beside a store belong to whoever has it open.
        files = [p for p in path.rglob("*") if not p.name.startswith("store.sqlite-")]
        return sorted((str(p), p.stat().st_size, p.read_bytes()) for p in files if p.is_file())

    before = listing()
    opened = viewer(tmp_path / "runs").enter()
    for page in ("/state", "/items?q=x", "/items/0"):
        opened.json(f"/api/runs/made{page}")
    assert listing() == before


def test_nothing_is_written_into_a_run_on_another_disk(viewer, tmp_path, monkeypatch):
    texts = {("i0", model): model for model in MODELS}
    path = compared_run(tmp_path / "runs" / "made", texts, {("i0", *PAIRS[0], JUDGES[0]): 0.9})

    def across(*_):
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(Path, "hardlink_to", across)
    before = sorted(one.name for one in (path / "results").iterdir())
    viewer(tmp_path / "runs").enter().json("/api/runs/made")
    assert sorted(one.name for one in (path / "results").iterdir()) == before


def test_a_run_that_cannot_be_read_says_so(viewer, tmp_path):
    path = made(tmp_path / "runs" / "made")
    (path / "store.sqlite").write_bytes(os.urandom(5000))
    reply = viewer(tmp_path / "runs").enter().get("/api/runs/made")
    assert reply.status_code in {404, 500}
    assert "damaged" in reply.json()["error"] or "store" in reply.json()["error"]


@pytest.mark.parametrize(
    "pages",
    [
        ["/items?limit=500", *(f"/items/{k}" for k in range(10))],
        pytest.param(["", "/sections"], marks=pytest.mark.slow),
    ],
    ids=["items", "overview"],
)
def test_hostile_texts_come_as_data_without_a_bracket(viewer, tmp_path, pages):
    make_run(tmp_path / "runs" / "made", hostile.frames(10), hostile.SETTINGS)
    opened = viewer(tmp_path / "runs").enter()
    for page in pages:
        reply = opened.get(f"/api/runs/made{page}")
        assert reply.status_code == 200
        assert "<" not in reply.text
        assert "\u202e" not in reply.text
        assert reply.headers["content-type"] == "application/json"


def test_a_name_that_joins_emoji_is_shown_whole(viewer, tmp_path):
    family = "\U0001f469\u200d\U0001f467-\u0646\u200c\u0627"
    settings = SETTINGS | {"models": {family: {}, "two": {}}}
    frames = {"items": items_frame(3), "answers": answers_frame(3, (family, "two"))}
    make_run(tmp_path / "runs" / "made", frames, settings)
    opened = viewer(tmp_path / "runs").enter()
    assert opened.json("/api/runs/made/items?answers=")["models"] == ["two", family]
    assert opened.json("/api/runs/made/items/0")["answers"][0]["model"] == family
    assert family in opened.json("/api/runs")["runs"][0]["models"]
