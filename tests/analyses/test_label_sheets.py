"""Sheets of labels: written, filled in by a spreadsheet, and read again."""

import csv
import io
import json
from itertools import combinations

import msgspec
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.analyses._few_labels import HumanLabelsAnalysis
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import DatasetError, UsageError
from orchestrator.interface.labelling import sheet_of
from orchestrator.methods import pairwise_ranking
from orchestrator.methods._drawing import AnswersConfig
from orchestrator.methods.answers import Kind as Answers
from orchestrator.ranking.human_labels import fingerprint, key_path, read_human_labels, skipped_rows
from orchestrator.ranking.labelled import Config
from tests.summaries import judged as invented

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
NASTY = (
    '=HYPERLINK("http://x","y")', "a,b", 'a "quoted" word', "two\nlines", "cr\rhere",
    "crlf\r\nhere", "@SUM(1)", "+1+1", "-2+3", "'", " ", "1", "tie", "2024-05-01", "TRUE",
    "Grüße 你好 🙂 ‏مرحبا",
    "\x1b[31mred", "nul\x00", "\ufeff",
)  # fmt: skip
NAMES = st.lists(
    st.one_of(TEXT, st.sampled_from(NASTY)).filter(str.strip), min_size=2, max_size=4, unique=True
).filter(lambda names: len({name.strip() for name in names}) == len(names))


def context_of(models, texts, n_items=3):
    """A run whose judge compared every two models; each answer has one of the texts."""
    rows, answers, items, place = [], [], [], 0
    for index in range(n_items):
        items.append((f"i{index}", texts[index % len(texts)], None))
        for model in models:
            answers.append(("answers", f"i{index}", model, 1, "", texts[place % len(texts)]))
            place += 1
        for a, b in combinations(models, 2):
            share = 0.1 + 0.8 * index / n_items
            both = invented.leaning(share), invented.leaning(1 - share)
            rows.append(invented.pair_row(f"i{index}", a, b, *both))
    frames = {
        "judgments": invented.pairs(rows),
        "answers": pl.DataFrame(
            answers, schema=["method", "item", "model", "turn", "prompt", "text"], orient="row"
        ),
        "items": pl.DataFrame(
            items, schema={"item": pl.String, "prompt": pl.String, "followups": pl.String},
            orient="row",
        ),
    }  # fmt: skip
    method = pairwise_ranking.Kind(pairwise_ranking.Config(judges=("judge",)))
    source = Source("pairwise_ranking", "pairwise_ranking", method, "judgments")
    return Context("human_labels", frames, pl.DataFrame(), [source], 0.95, 200, 0)


def spreadsheet(
    path, change, *, line_end="\r\n", mark=True, quoting=csv.QUOTE_MINIMAL, floats=False
):
    """Open the sheet as a spreadsheet does, change its rows, and save it."""
    text = path.read_bytes().decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    rows = change(rows)
    if floats:  # pandas and LibreOffice make them of numbers in a column with gaps
        rows = [row | {"label": f"{row['label']}.0".replace("tie.0", "tie")} for row in rows]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), lineterminator=line_end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(out.getvalue().encode("utf-8-sig" if mark else "utf-8"))
    return rows


def said_of(row):
    """A label that depends on what the person sees."""
    return ("1", "2", "tie")[sum(map(ord, row["answer_1"] + "|" + row["answer_2"])) % 3]


def fill(rows):
    return [row | {"label": said_of(row)} for row in rows]


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    models=NAMES,
    texts=st.lists(st.one_of(TEXT, st.sampled_from(NASTY)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
    saved=st.fixed_dictionaries(
        {
            "line_end": st.sampled_from(["\n", "\r\n"]),
            "mark": st.booleans(),
            "floats": st.booleans(),
            "quoting": st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        }
    ),
    turned=st.booleans(),
)
@example(models=["tie", "1"], texts=list(NASTY), seed=0, saved={}, turned=True)
@example(models=["a,b", '=1+"x"', "b\nc"], texts=list(NASTY), seed=1, saved={}, turned=False)
def test_labels_reach_the_answers_that_were_shown(tmp_path, models, texts, seed, saved, turned):
    texts = [text.replace("\x00", "") for text in texts]
    context = context_of(models, texts)
    path = tmp_path / "labels.csv"
    key = sheet_of(context, n_labels=6, seed=seed).write(path, force=True)
    filled = spreadsheet(path, lambda rows: fill(rows[::-1] if turned else rows), **saved)
    found = {one.code: one for one in read_human_labels(path)}
    assert len(found) == len(filled)
    shown = {
        (item, model): text
        for item, model, text in context.frames["answers"].select("item", "model", "text").rows()
    }
    for row in filled:
        label = found[row["code"]]
        assert label.value == {"1": 1.0, "2": 0.0, "tie": 0.5}[row["label"].removesuffix(".0")]
        for side, model in zip(("answer_1", "answer_2"), label.about.models, strict=True):
            # The letters are those of the model's answer; the rest may be escaped for spreadsheets.
            text = shown[label.about.item, model]
            if text.isprintable():
                assert row[side].lstrip("'") == text.lstrip("'")
    assert key == key_path(path)


def test_no_cell_of_a_sheet_is_a_formula(tmp_path):
    path = tmp_path / "labels.csv"
    sheet_of(context_of(["a", "b"], list(NASTY))).write(path)
    rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""))
    assert not [cell for row in rows for cell in row if cell.lstrip()[:1] in {"=", "@"}]
    assert "\x1b" not in path.read_text(encoding="utf-8")


def test_the_seed_decides_rows_order_and_sides():
    context = context_of(["a", "b", "c"], ["one", "two", "three", "four"], n_items=30)

    def drawn(seed):
        return sheet_of(context, n_labels=40, seed=seed)

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert first.rows.equals(again.rows)
    assert first.key == again.key
    assert first.key != other.key
    places = [int(one["item"][1:]) for one in first.key]
    assert places != sorted(places)
    turned = sum(one["model_a"] > one["model_b"] for one in first.key)
    assert 8 < turned < 32
    assert not {"model", "model_a", "item"} & set(first.rows.columns)


LONG = [
    f"answer {word} of the model in question" for word in ("one", "two", "three", "four", "five")
]


@pytest.fixture
def sheet(tmp_path):
    """A sheet of six pairs on disk."""
    context = context_of(["good", "poor"], LONG, n_items=6)
    path = tmp_path / "labels.csv"
    sheet_of(context, seed=3).write(path)
    return path


def refused(path):
    with pytest.raises(DatasetError) as error:
        read_human_labels(path)
    return str(error.value).splitlines()


def test_one_column_sorted_alone_is_refused(sheet):
    def mix(rows):
        texts = sorted(row["answer_1"] for row in rows)
        return [row | {"answer_1": text} for row, text in zip(fill(rows), texts, strict=True)]

    spreadsheet(sheet, mix)
    found = refused(sheet)
    assert found
    assert all("'answer_1' is not the text that r" in line for line in found)
    assert found[0].startswith("labels.csv:")
    assert "sort whole rows and change only the labels" in found[0]


def test_labels_sorted_with_their_codes_are_read(sheet):
    spreadsheet(sheet, lambda rows: sorted(fill(rows), key=lambda row: row["answer_1"]))
    assert len(read_human_labels(sheet)) == 6


def test_a_sheet_without_its_texts_is_read(sheet):
    spreadsheet(sheet, lambda rows: [{"code": r["code"], "label": "tie"} for r in rows])
    assert len(read_human_labels(sheet)) == 6


def test_a_row_that_is_missing_is_named(sheet):
    spreadsheet(sheet, lambda rows: fill(rows)[:3] + fill(rows)[4:])
    assert refused(sheet) == [
        "labels.key.jsonl:4: r4 is not in labels.csv; restore its row, and leave the label empty "
        "if nobody labelled it"
    ]


def test_a_wrong_label_is_named(sheet):
    spreadsheet(sheet, lambda rows: [row | {"label": "3"} for row in rows[:1]] + rows[1:])
    assert refused(sheet) == ["labels.csv:2: the label of a pair is 1, 2 or tie, not '3'"]


def test_a_name_is_no_label_of_a_sheet_that_shows_none(tmp_path):
    """Model "2" may stand on the left: a label 2 means the answer on the right."""
    context = context_of(["1", "2"], LONG, n_items=6)
    path = tmp_path / "labels.csv"
    key = sheet_of(context).write(path)
    spreadsheet(path, lambda rows: [row | {"label": "2"} for row in rows])
    sides = [json.loads(line)["model_b"] for line in key.read_text().splitlines()]
    assert set(sides) == {"1", "2"}
    assert {one.value for one in read_human_labels(path)} == {0.0}


def test_a_name_that_is_also_a_side_is_refused_where_names_are_given(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("item,model_a,model_b,label\ni1,2,1,2\n", encoding="utf-8")
    assert "'2' is a model's name and also a side; write model_a" in refused(path)[0]


def test_rows_passed_over_are_noted(sheet):
    """Those are not missing at random: the rows that are hard to decide."""
    spreadsheet(sheet, lambda rows: [r | {"label": "1" if r["code"] != "r2" else ""} for r in rows])
    assert skipped_rows(sheet, read_human_labels(sheet)) == ["r2"]
    context = context_of(["good", "poor"], LONG, n_items=6)
    analysis = HumanLabelsAnalysis(Config(labels=str(sheet)))
    notes = " ".join(analysis.summarise(context)[0].notes)
    assert "1 row of the sheet (r2) have no label although later ones have" in notes


def test_the_first_rows_alone_may_be_labelled(sheet):
    spreadsheet(sheet, lambda rows: [r | {"label": "1" if r["code"] < "r4" else ""} for r in rows])
    assert skipped_rows(sheet, read_human_labels(sheet)) == []


def test_an_existing_sheet_is_kept(sheet):
    drawn = sheet_of(context_of(["good", "poor"], LONG))
    with pytest.raises(UsageError, match="exists, and may hold labels; choose another name"):
        drawn.write(sheet)
    drawn.write(sheet, force=True)
    with pytest.raises(UsageError, match=r"must end in \.csv"):
        drawn.write(sheet.with_suffix(".txt"))


def test_a_run_without_a_judge_has_nothing_to_label():
    context = msgspec.structs.replace(context_of(["a", "b"], LONG), sources=[])
    with pytest.raises(UsageError, match="no method of this run judges answers"):
        sheet_of(context)


def test_only_what_compares_answers_or_scores_them_is_labelled():
    context = context_of(["a", "b"], LONG)
    plain = Source("plain", "answers", Answers(AnswersConfig()), "answers")
    context = msgspec.structs.replace(context, sources=[plain, *context.sources])
    judging = sheet_of(context, method="pairwise_ranking")
    assert sheet_of(context).method == judging.method == "pairwise_ranking"
    assert judging.rows.equals(sheet_of(context).rows)
    with pytest.raises(UsageError, match="'plain' neither scores answers nor compares them"):
        sheet_of(context, method="plain")


def test_a_margin_draws_all_pairs_below_it_as_no_random_choice():
    context = context_of(["a", "b"], LONG, n_items=40)
    # The judge's share of item i is 0.1 + 0.02 i, so that its margin is |0.04 i - 0.8|.
    drawn = sheet_of(context, n_labels=None, below=0.3)
    assert sorted(int(one["item"][1:]) for one in drawn.key) == list(range(13, 28))
    assert {round(one["probability"], 9) for one in drawn.key} == {1.0}
    with pytest.raises(UsageError, match="no pair of 'pairwise_ranking' has a margin below"):
        sheet_of(context, below=0.0)


def test_a_verdict_that_is_kept_at_a_margin_is_not_drawn_below_it():
    context = context_of(["a", "b"], LONG, n_items=400)
    # By rounding, the margin of items 83 and 317 is the least bit below 0.468, as they are shown.
    drawn = sheet_of(context, n_labels=None, below=0.468)
    assert sorted(int(one["item"][1:]) for one in drawn.key) == list(range(84, 317))


@given(TEXT)
def test_a_fingerprint_outlives_what_spreadsheets_change(text):
    same = text.replace("\n", "\r\n").replace("\t", " ") + "  "
    assert fingerprint(f"'{same}") == fingerprint(text)
