import re

import msgspec
import polars as pl
import pytest

from orchestrator.analyses.probdiff_ablation import Config, Kind
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import schema_of
from orchestrator.errors import UsageError
from orchestrator.frames import polars_schema
from orchestrator.methods import probdiff
from orchestrator.report.export import beside
from orchestrator.report.latex import latex
from orchestrator.tables import Measured
from tests.analyses.files import NoTexts
from tests.reference.test_published import ALIGN_BENCH

SCHEMA = {"method": pl.String(), **polars_schema(schema_of(probdiff.Kind))}


def summarise(asked):
    config, context = asked
    return Kind(config).summarise(context)


def context(rows, *sources):
    frames = {"probdiff": pl.DataFrame(rows, schema=SCHEMA)}
    return Config(), Context("a", frames, pl.DataFrame(), sources, 0.95, 200, 0)


def row(method, item, d):
    return {
        "method": method, "item": item, "model": "m", "turn": 1, "d": d, "unchanged": False,
        "status": "ok",
    }  # fmt: skip


def source(name, **settings):
    return Source(name, "probdiff", probdiff.Kind(probdiff.Config(**settings)), "probdiff")


def test_every_probdiff_method_stands_in_one_table_by_threshold():
    rows = [row("a", "1", -0.03), row("a", "2", 0.1), row("b", "1", -1.0), row("b", "2", -1.0)]
    sources = (source("a", deltas=(-0.05, 0)), source("b", deltas=(-0.05,), prompt="simple"))
    settings, table = summarise(context(rows, *sources))
    assert settings.rows == (
        ("a", "refinement", 1, 1, "all", 0.7, 0.1),
        ("b", "simple", 1, 1, "all", 0.7, 0.1),
    )
    found = [(line[0], line[3], line[4]) for line in table.rows]
    assert [(name, delta, getattr(cell, "value", None)) for name, delta, cell in found] == [
        ("a", 0.0, 0.5),
        ("a", -0.05, 1.0),
        ("b", -0.05, 0.0),
    ]


def test_the_temperatures_are_those_of_the_categories():
    official = {"temperature": 1.0, "temperature_by_category": "align_bench"}
    categories = ("文本写作", "角色扮演", "数学计算")
    rows = [
        {**row(name, str(at), 0.0), "category": category}
        for name in ("rewritten at 0.1", "same", "warm")
        for at, category in enumerate(categories)
    ]
    settings, *_ = summarise(
        context(
            rows,
            source("rewritten at 0.1", answer=official),
            source("same", answer=official, revision=official),
            source("warm", answer=official, revision={"temperature": 0.7}),
        )
    )
    assert [(line[0], *line[4:]) for line in settings.rows] == [
        ("rewritten at 0.1", "数学计算", 0.1, 0.1),
        ("rewritten at 0.1", "文本写作, 角色扮演", 0.7, 0.1),
        ("same", "数学计算", 0.1, 0.1),
        ("same", "文本写作, 角色扮演", 0.7, 0.7),
        ("warm", "数学计算", 0.1, 0.7),
        ("warm", "文本写作, 角色扮演", 0.7, 0.7),
    ]


# Table 7 of the Findings version: confidence in percent of Qwen and of its fine-tuned copy by
# threshold, and questions of each category.
CATEGORIES = {"Pro": 124, "Math": 111, "Fund": 69, "Logic": 95, "Writ": 75, "Chi": 58, "Role": 116,
              "Open": 38}  # fmt: skip
TABLE_7 = {
    ("Qwen", 0.0): (10.5, 6.3, 8.7, 23.2, 37.3, 6.9, 37.1, 13.2),
    ("Qwen", -0.05): (20.2, 18.9, 15.9, 31.6, 62.7, 13.8, 53.4, 42.1),
    ("Qwen", -0.1): (26.6, 29.7, 26.1, 34.7, 72.0, 20.7, 65.5, 57.9),
    ("Qwen_ft", 0.0): (25.0, 43.2, 40.6, 55.8, 41.3, 27.6, 56.0, 31.6),
    ("Qwen_ft", -0.05): (25.0, 48.6, 43.5, 62.1, 52.0, 27.6, 60.3, 34.2),
    ("Qwen_ft", -0.1): (27.4, 55.0, 44.9, 70.5, 58.7, 29.3, 62.9, 47.4),
}


def gaps_of_table_7():
    """As many d in each band between two thresholds as the printed shares ask for."""
    for model in ("Qwen", "Qwen_ft"):
        for place, (category, n) in enumerate(CATEGORIES.items()):
            passed = [round(TABLE_7[model, delta][place] * n / 100) for delta in (0.0, -0.05, -0.1)]
            bands = [0.01] * passed[0] + [-0.03] * (passed[1] - passed[0])
            bands += [-0.07] * (passed[2] - passed[1]) + [-0.5] * (n - passed[2])
            for at, d in enumerate(bands):
                yield {**row("a", f"{category} {at}", d), "model": model, "category": category}


def test_confidence_stands_by_category_and_threshold_as_printed():
    rows = list(gaps_of_table_7())
    *_, table = summarise(context(rows, source("a", deltas=(-0.05, 0, -0.1))))
    assert table.key == "probdiff_ablation.categories"
    names = [column.name for column in table.columns]
    lines = [dict(zip(names, line, strict=True)) for line in table.rows]
    assert [line["delta"] for line in lines] == [0.0, 0.0, -0.05, -0.05, -0.1, -0.1]
    for line in lines:
        printed = TABLE_7[line["model"], line["delta"]]
        shown = tuple(round(100 * line[name].value, 1) for name in CATEGORIES)
        assert shown == printed
    # The paper's Overall is a micro average, over 683 where the categories sum to 686.
    (overall,) = (line["all (micro)"] for line in lines[2:3])
    assert overall.value == pytest.approx(220 / 686)
    assert overall.low < 0.322 < overall.high


PRINTED = ("all (micro)", *CATEGORIES)


def printed_rows(*names):
    """Rows that pass as often as print says, by the name of the method."""
    for name, printed in names:
        for model, tuned in (("Qwen", "Qwen"), ("Qwen_ft", "tuned")):
            shares = ALIGN_BENCH[f"{printed}, {tuned}"][1:]
            for (category, n), share in zip(CATEGORIES.items(), shares, strict=True):
                for at in range(n):
                    d = 0.0 if at < round(share * n / 100) else -1.0
                    yield {**row(name, f"{category} {at}", d), "model": model, "category": category}


BY_SETTING = {"same": "same temperature", "0.7": "temperature 0.7"}


@pytest.mark.parametrize(
    ("names", "where", "first", "settings"),
    [
        ([("a", "delta 0")], {}, "delta", ("0", "-0.05", "-0.1")),
        ([("simple", "simple prompt")], {"method": "simple"}, "method", ("simple",)),
        (list(BY_SETTING.items()), {}, "method", ("same", "0.7")),
    ],
    ids=["Table 7", "Table 8", "Table 9"],
)
def test_a_printed_table_has_its_rows_and_columns_in_latex(names, where, first, settings):
    is_first = first == "delta"
    rows = list(gaps_of_table_7() if is_first else printed_rows(*names))
    deltas = (-0.05, 0, -0.1) if is_first else (-0.05,)
    *_, table = summarise(context(rows, *(source(name, deltas=deltas) for name, _ in names)))
    made = beside({"run": table}, [first, "model", *PRINTED], where)
    text = latex(made, name="t")
    heading = text.split("\\toprule\n")[1].split("\\midrule")[0]
    titles = [re.sub(r".*\{(.*)\}", r"\1", cell.strip(" \\\n")) for cell in heading.split("&")]
    assert titles == [first, "model", *PRINTED]
    lines = [(setting, model) for setting in settings for model in ("Qwen", "tuned")]
    assert len(made.rows) == len(lines)
    for found, (setting, model) in zip(made.rows, lines, strict=True):
        said = f"delta {setting}" if is_first else dict(names)[setting]
        assert found[1] == {"Qwen": "Qwen", "tuned": "Qwen_ft"}[model]
        cells = [cell for cell in found[2:] if isinstance(cell, Measured)]
        overall, *shares = (round(100 * (cell.value or 0.0), 1) for cell in cells)
        assert tuple(shares) == ALIGN_BENCH[f"{said}, {model}"][1:]
        # Print divides by 683 questions, and its categories sum to 686.
        assert overall == pytest.approx(ALIGN_BENCH[f"{said}, {model}"][0], abs=0.3)


def test_without_categories_there_is_no_table_of_them():
    assert len(summarise(context([row("a", "1", -0.03)], source("a")))) == 2


def test_without_rows_yet_the_temperatures_are_those_of_the_settings():
    settings, *_ = summarise(
        context([], source("a", answer={"temperature": 0.5, "temperature_by_category": {"x": 0}}))
    )
    assert [line[4:] for line in settings.rows] == [("x", 0.0, 0.1), ("(none)", 0.5, 0.1)]


def test_a_recipe_without_probdiff_is_refused():
    with pytest.raises(UsageError, match="no method of kind probdiff"):
        summarise(context([]))


def test_only_the_columns_that_it_needs_are_read(tmp_path, monkeypatch):
    whole = context([row("a", "1", -0.03), row("a", "2", 0.1)], source("a"))
    config, over_frames = whole
    files = NoTexts(tmp_path, over_frames.frames, monkeypatch)
    read = summarise((config, msgspec.structs.replace(over_frames, frames=files)))
    assert read == summarise(whole)
    assert files.read == {"method", "item", "category", "model", "status", "d", "unchanged"}
