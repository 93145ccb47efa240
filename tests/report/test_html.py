import base64
import json
import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import OrchestratorError
from orchestrator.figures import key
from orchestrator.probing.record import BAD, Finding, ProbeRecord
from orchestrator.report.html import basis, charts, methods, page, shell
from orchestrator.report.html.examples import examples
from orchestrator.report.text import safe_block
from orchestrator.report.words import plain
from orchestrator.runner.results.tables import all_sources
from orchestrator.store import FailureCount
from orchestrator.tables import Cell, Column, Measured, make_table
from tests.report import hostile

_ALLOWED_SCRIPTS = 2


class Reader(HTMLParser):
    """Collects what a browser would find in a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, list[str]] = {"script": [], "style": [], "pre": []}
        self._inside = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag in self.content:
            self.content[tag].append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside in self.content:
            self.content[self._inside][-1] += data


@pytest.fixture(scope="module")
def material():
    return hostile.material()


@pytest.fixture(scope="module")
def whole(material):
    return page.render(material)


@pytest.fixture(scope="module")
def figures(material):
    return page.all_figures(material)


@pytest.fixture(scope="module")
def read(whole):
    reader = Reader()
    reader.feed(whole)
    return reader


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (basis.requests, ["10{n}", "20{n}", "30{n}", "40{n}", "50{n}"]),
        (basis.lost, ["cause {n}", "60{n}", "message {n}"]),
        (basis.models, ["weights {n}", "server {n}", "address {n}", "identity {n}"]),
        (basis.probes, ["backend {n}", "version {n}", "name {n}", "value {n}", "said {n}"]),
    ],
)
def test_each_model_has_a_row_with_all_that_is_known_of_it(material, table, known):
    names = ["a", "b", "c"]
    counts = ("done", "failed", "retried", "prompt_tokens", "completion_tokens")
    progress = [
        {"name": name, **{count: 100 * (k + 1) + n for k, count in enumerate(counts)}}
        for n, name in enumerate(names)
    ]
    of_all = replace(
        material,
        settings={"models": {name: {"weights": f"weights {n}"} for n, name in enumerate(names)}},
        identities={name: {"kind": f"identity {n}"} for n, name in enumerate(names)},
        servers={name: [f"server {n}", f"address {n}"] for n, name in enumerate(names)},
        progress={"models": progress},
        lost=[
            FailureCount._make((False, name, f"cause {n}", 0, 600 + n, f"message {n}"))
            for n, name in enumerate(names)
        ],
        probes={
            name: ProbeRecord(
                backend=f"backend {n}",
                model=name,
                version=f"version {n}",
                findings=(Finding(f"name {n}", f"value {n}", BAD, f"said {n}", ""),),
            )
            for n, name in enumerate(names)
        },
    )
    rows = [" | ".join(map(str, row)) for row in table(of_all).rows]
    for n, (name, row) in enumerate(zip(names, rows, strict=True)):
        assert row.startswith(f"{name} | ")
        assert [mark for mark in known if mark.format(n=n) not in row] == []


def test_no_tag_of_a_model_becomes_a_tag(read):
    names = [tag for tag, _ in read.tags]
    assert names.count("script") == _ALLOWED_SCRIPTS
    assert names.count("style") == 1
    assert not {"img", "iframe", "base", "object", "embed", "link", "form"} & set(names)


def test_no_attribute_runs_anything(read):
    found = [name for _, attributes in read.tags for name in attributes]
    assert not [name for name in found if name.startswith("on") or name == "style"]


def test_links_stay_in_the_page(read):
    links = [a[n] for _, a in read.tags for n in ("href", "src", "xlink:href") if n in a]
    assert links
    assert all(link.startswith("#") for link in links)


def test_nothing_is_fetched(read):
    assert "url(" not in read.content["style"][0]
    assert "@import" not in read.content["style"][0]
    outside = re.findall(r"fetch\(|XMLHttpRequest|import\(|WebSocket", read.content["script"][1])
    assert outside == []


def test_the_policy_allows_what_stands_in_the_page_and_nothing_else(read):
    policy = next(a["content"] for tag, a in read.tags if tag == "meta" and "http-equiv" in a)
    own = read.content["script"][1], read.content["style"][0]
    for text in own:
        assert base64.b64encode(sha256(text.encode()).digest()).decode() in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_data_of_the_charts_is_json_without_markup(read):
    text = read.content["script"][0]
    assert "<" not in text
    assert "wins" in " ".join(json.loads(text))


def test_every_anchor_is_there_once(read):
    ids = [a["id"] for _, a in read.tags if "id" in a]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for tag, a in read.tags if tag == "a"]
    assert set(targets) <= set(ids)


def test_answers_are_shown_as_they_are(read):
    assert any(text.startswith(hostile.SCRIPT) for text in read.content["pre"])


def test_a_huge_answer_does_not_make_a_huge_page(whole):
    assert "x" * 3000 not in whole
    assert len(whole) < 2_000_000


def test_what_reorders_or_hides_text_is_written_out(whole):
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\u2028\x00\x1b]", whole)
    assert r"\u202e" in whole


def test_templates_in_answers_are_not_filled_in(whole):
    assert "{{ 7 * 7 }}" in whole


def test_every_figure_says_its_n(figures):
    assert len(figures) >= 9
    assert [figure.key for figure in figures if not figure.basis.startswith("n = ")] == []


@given(st.lists(st.sampled_from(["", "timeout", "too_long", "dead_server"]), min_size=1))
def test_causes_of_missing_rows_stand_by_how_often_they_are(material, causes):
    frame = pl.DataFrame(
        {"method": "m", "item": "i", "cause": [one or None for one in causes]}
        | {"status": ["failed" if one else "ok" for one in causes]}
    )
    (row,) = basis.coverage(replace(material, frames={"m": frame})).table.rows
    counts = [int(one.rpartition(" ")[2]) for one in str(row[-1]).split(", ")] if row[3] else []
    assert counts == sorted(Counter(filter(None, causes)).values(), reverse=True)
    assert sum(counts) == row[3]


def test_every_figure_has_its_numbers_as_a_table(figures):
    for figure in figures:
        assert figure.table.rows, figure.key
        assert all(len(row) == len(figure.table.columns) for row in figure.table.rows)


def test_without_the_extra_there_are_tables_and_a_word(material, monkeypatch):
    monkeypatch.setattr(shell, "_NEEDED", ("no_such_module",))
    text = page.render(material)
    assert "[report]" in text
    assert "<figure" in text
    assert 'role="img"' not in text


def test_with_too_little_address_space_nothing_is_drawn(material, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (4 << 30, 4 << 30))
    text = page.render(material)
    assert "80 GiB of address space" in text
    assert 'role="img"' not in text


def test_a_run_without_results_still_has_a_page():
    empty = hostile.material(
        frames={}, rankings=[], tables=[], context=all_sources({}, hostile.SETTINGS)
    )
    shown = page.render(empty)
    assert shown.index("Incomplete: 3 of 100 units remain") < shown.index("No results yet: ")


def test_drawings_hold_shapes_and_text_only(figures):
    for figure in figures:
        found = charts.specification(figure)
        if found is None:
            continue
        text = charts.svg(found, figure.key, "alternative")
        root = ET.fromstring(text)  # noqa: S314 (our own drawing)
        assert root.get("role") == "img"
        assert root.get("aria-label") == "alternative"
        assert not [n for e in root.iter() for n in e.attrib if n.startswith("on") or "href" in n]


def test_a_drawing_with_anything_else_is_refused():
    linked = {
        "mark": "image",
        "data": {"values": [{"u": "data:,"}]},
        "encoding": {"url": {"field": "u"}},
    }
    with pytest.raises(OrchestratorError, match="a chart holds"):
        charts.svg(linked, "a", "b")


def test_ids_of_two_drawings_differ(figures):
    found = charts.specification(figures[0])
    assert found is not None
    ids = [set(re.findall(r'id="([^"]+)"', charts.svg(found, key, ""))) for key in ("a", "b")]
    assert not ids[0] & ids[1]


def test_flipped_examples_have_another_winner_in_the_other_order(material):
    flipped = next(one for one in examples(material) if one.key == "flipped")
    assert flipped.cases
    for about, *_ in flipped.cases:
        shares = re.findall(r"([\d.]+) with", about)
        assert len({float(share) > 0.5 for share in shares}) == len(shares) == 2


def test_what_a_server_was_found_to_do_is_in_the_page(whole):
    assert "Probes of the servers" in whole
    assert "bos twice" in whole


def test_a_judge_whose_pairs_have_a_right_answer_has_its_calibration_drawn(figures):
    (one,) = [figure for figure in figures if figure.key == "calibration"]
    assert sum(row[-1] for row in one.table.rows) > 0
    (judge,) = {row["group"] for row in one.picture.rows}
    assert judge.endswith(" (pointwise)")


def test_without_right_answers_there_is_no_calibration():
    frames = hostile.frames()
    frames["answers"] = frames["answers"].with_columns(exact_match=pl.lit(None, pl.Boolean))
    context = all_sources(frames, hostile.SETTINGS)
    keys = [one.key for one in page.all_figures(hostile.material(frames=frames, context=context))]
    assert "calibration" not in keys
    assert "position" in keys


def test_undefined_cells_say_why_and_have_no_order():
    table = make_table("k", "t", [Column("x", "number")], [[Measured(None, why="no values")]])
    (cell,) = shell.grid(table, "k").rows[0]
    assert cell.order == ""
    assert "no values" in cell.text + cell.aside


@given(st.text(max_size=60))
def test_a_block_has_nothing_that_moves_its_neighbours(text):
    shown = safe_block(text)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x08\x7f]", shown)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/home/somebody/models/judge.gguf", "…/judge.gguf"),
        ("models/judge.gguf", "models/judge.gguf"),
        ("https://models.example/v1", "https://models.example/v1"),
        ("a/b", "a/b"),
    ],
)
def test_a_page_names_no_folder_of_this_machine(said, shown):
    assert basis.without_folders(said) == shown
    settings = {"models": [{"weights": said, "n": 1}, None]}
    assert plain(settings, basis.without_folders) == {"models": [{"weights": shown, "n": 1}, None]}


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_letter_has_at_most_three_marks_and_a_block_its_limit(n_marks, n_more):
    text = "e" + "\u0301" * n_marks + "x" * n_more
    assert safe_block(text) == "e" + "\u0301" * min(n_marks, 3) + "x" * n_more
    cut = f"… ({n_more:,} more characters)" if n_more else ""
    assert safe_block("y" * (5 + n_more), limit=5) == f"yyyyy{cut}"


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=60))
def test_anchors_are_safe_for_files_and_links(text):
    assert re.fullmatch(r"[a-z0-9-]{1,80}", key(text))


def test_a_method_without_a_drawing_of_its_own_is_drawn_from_its_first_table():
    columns = [Column("model"), Column("win rate", "percent")]
    rows: list[list[Cell]] = [["a", Measured(0.6, 0.5, 0.7)], ["b", Measured(0.4, 0.3, 0.5)]]
    table = make_table("consistency", "Win rates", columns, rows, basis="20 prompts")
    settings = hostile.SETTINGS | {"methods": [{"kind": "consistency"}]}
    (figure,) = methods.summaries(
        hostile.material(
            tables=[msgspec.structs.replace(table, source="consistency")],
            context=all_sources({}, settings),
        )
    )
    assert figure.picture is not None
    assert [row["value"] for row in figure.picture.rows] == [0.6, 0.4]
    assert figure.basis == "n = 20 prompts"


def test_the_summary_for_notebooks_holds_no_markup_of_a_model(material):
    reader = Reader()
    reader.feed(page.summary(material))
    allowed = {"div", "p", "b", "bdi", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th"}
    assert {tag for tag, _ in reader.tags} <= allowed | {"td", "br", "code"}
    assert "Ranking" in page.summary(material)


def test_the_summary_of_a_run_without_results_says_what_is_missing():
    empty = hostile.material(
        frames={}, rankings=[], tables=[], context=all_sources({}, hostile.SETTINGS)
    )
    assert "Incomplete: 3 of 100 units remain" in page.summary(empty)
