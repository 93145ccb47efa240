from collections import Counter
from itertools import combinations

import msgspec
import polars as pl
import pytest

from orchestrator.analyses.conflict import Config, Kind
from orchestrator.contracts import context as context_module
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import schema_of
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.frames import polars_schema
from orchestrator.methods import judged_rewrites, probdiff
from tests.analyses.files import NoTexts
from tests.core.fakes import PLAIN
from tests.tables import lines

GAPS = {"method": pl.String(), **polars_schema(schema_of(probdiff.Kind))}
JUDGED = {"method": pl.String(), **polars_schema(schema_of(judged_rewrites.Kind))}


def summarise(asked):
    config, context = asked
    return Kind(config).summarise(context)


def gap(item, d, model="m"):
    return {
        "method": "probdiff", "item": item, "model": model, "turn": 1, "d": d, "rewriting": "r",
        "status": "ok",
    }  # fmt: skip


def verdict(item, value, model="m", rewriting="r"):
    return {
        "method": "judged_rewrites", "item": item, "model": model, "judge": "j", "turn": 1,
        "verdict": value, "rewriting": rewriting, "status": "ok",
    }  # fmt: skip


def context(gaps, verdicts=(), **settings):
    frames = {
        "probdiff": pl.DataFrame(gaps, schema=GAPS),
        "judged_rewrites": pl.DataFrame(list(verdicts), schema=JUDGED),
    }
    sources = [
        Source("probdiff", "probdiff", PLAIN, "probdiff"),
        Source("judged_rewrites", "judged_rewrites", PLAIN, "judged_rewrites"),
    ]
    return Config(**settings), Context("conflict", frames, pl.DataFrame(), sources, 0.95, 200, 0)


def write_labels(path, rows, columns="item,annotator,label"):
    path.write_text("\n".join([columns, *rows]) + "\n", encoding="utf-8")
    return str(path)


def test_a_conflict_is_up_but_worse_or_down_but_better():
    gaps = [gap("1", 0.1), gap("2", -0.1), gap("3", 0.1), gap("4", -0.1), gap("5", 0.0)]
    gaps += [gap("6", 0.1)]  # a draw is no conflict, on either side
    judged = [verdict(str(i), v) for i, v in enumerate((-1.0, 1.0, 1.0, 0.0, -1.0, 0.0), 1)]
    (table,) = summarise(context(gaps, judged))
    (line,) = lines(table)
    assert line["conflict degree"].value == pytest.approx(2 / 6)
    assert (line["d > 0, worse"], line["d < 0, better"], line["texts"]) == (1, 1, 6)


def test_a_mean_over_rewritings_of_which_one_is_judged_is_refused():
    config, asked = context([gap("1", 0.1)], [verdict("1", -1.0)])
    several = probdiff.Kind(probdiff.Config(prompt="compact", rewritings=2))
    sources = [Source("probdiff", "probdiff", several, "probdiff"), asked.sources[1]]
    with pytest.raises(UsageError, match="mean over several rewritings"):
        summarise((config, msgspec.structs.replace(asked, sources=sources)))


def test_texts_without_a_d_and_judgments_of_other_rewritings_are_left_out_and_counted():
    gaps = [gap("1", None), gap("2", -0.1), gap("3", -0.1)]
    judged = [verdict("1", 1.0), verdict("2", 1.0, rewriting="another"), verdict("3", 1.0)]
    (table,) = summarise(context(gaps, judged))
    (line,) = lines(table)
    assert (line["conflict degree"].value, line["texts"]) == (1.0, 1)
    assert any(note.startswith("2 judgments") for note in table.notes)


def test_models_are_shown_apart_and_together():
    gaps = [gap("1", 0.1, "a"), gap("1", 0.1, "b")]
    judged = [verdict("1", -1.0, "a"), verdict("1", 1.0, "b")]
    (table,) = summarise(context(gaps, judged))
    degrees = {line["model"]: line["conflict degree"].value for line in lines(table)}
    assert degrees == {"a": 1.0, "b": 0.0, "all": 0.5}


def test_over_people_the_mean_is_given_and_their_kappas(tmp_path):
    gaps = [gap(str(i), 0.1 if i % 2 else -0.1) for i in range(6)]
    rows = [f"{i},{who},{1 if i % 2 else -1}" for i in range(6) for who in ("x", "y")]
    rows += [f"{i},z,{-1 if i < 3 else 1}" for i in range(6)]
    path = write_labels(tmp_path / "labels.csv", rows)
    table, agreement = summarise(context(gaps, labels=path))
    degrees = {line["judged by"]: line["conflict degree"] for line in lines(table)}
    assert degrees["x"].value == 0.0
    assert degrees["z"].value == pytest.approx(2 / 6)
    assert degrees["mean of people"] == pytest.approx(1 / 9)
    kappas = {line["of"]: line for line in lines(agreement) if line["statistic"] == "Cohen"}
    assert kappas["x, y"]["kappa or alpha"].value == pytest.approx(1.0)
    # 4 of 6 agree, all margins are one half: (2/3 - 1/2) / (1/2).
    assert kappas["x, z"]["kappa or alpha"].value == pytest.approx(1 / 3)
    (alpha,) = (line for line in lines(agreement) if line["statistic"] == "Krippendorff's alpha")
    # Agreement of pairs of raters (4 * 1 + 2 * 1/3) / 6 = 14/18; of two categories, disagreement
    # 1 - 14/18, by chance 9 * 9 * 2 / (18 * 17).
    assert alpha["kappa or alpha"].value == pytest.approx(1 - (4 / 18) / (162 / 306))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("judged", [False, True])
def test_what_all_people_agree_on_is_said_where_pairs_do_not_say_it(tmp_path, n, judged):
    people, items = [f"p{i}" for i in range(n)], [str(i) for i in range(3)]
    rows = [f"{item},{who},1" for item in items for who in people]
    path = write_labels(tmp_path / "labels.csv", rows)
    verdicts = [verdict(item, 1.0) for item in items] if judged else []
    asked = context([gap(item, 0.1) for item in items], verdicts, labels=path)
    conflicts, *agreement = summarise(asked)
    found = Counter(line["of"] for table in agreement for line in lines(table))
    assert found.pop("people", 0) == (2 if n > 2 else 0)
    raters = [*["j (judged_rewrites)"] * judged, *people]
    assert found == Counter(", ".join(pair) for pair in combinations(raters, 2))
    assert ("mean of people" in {line["judged by"] for line in lines(conflicts)}) == (n > 1)


def test_a_judge_is_held_against_people_too(tmp_path):
    path = write_labels(tmp_path / "labels.csv", ["1,x,1", "2,x,-1"])
    judged = [verdict("1", 1.0), verdict("2", 1.0)]
    _, agreement = summarise(context([gap("1", 0.1), gap("2", 0.1)], judged, labels=path))
    (line,) = lines(agreement)
    assert line["of"] == "j (judged_rewrites), x"


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (["1,x,2"], "item,annotator,label", "-1, 0 or 1"),
        (["1,x,good"], "item,annotator,label", "-1, 0 or 1"),
        (["1,x"], "item,annotator", "no column for the label"),
    ],
)
def test_labels_of_another_form_are_refused(tmp_path, rows, columns, said):
    path = write_labels(tmp_path / "labels.csv", rows, columns)
    with pytest.raises(OrchestratorError, match=said):
        summarise(context([gap("1", 0.1)], labels=path))


def test_labels_must_say_which_model_they_are_about_where_there_are_several(tmp_path):
    path = write_labels(tmp_path / "labels.csv", ["1,x,1"])
    with pytest.raises(UsageError, match="lacks the model"):
        summarise(context([gap("1", 0.1, "a"), gap("1", 0.1, "b")], labels=path))


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(OrchestratorError, match=r"gone\.csv"):
        summarise(context([gap("1", 0.1)], labels=str(tmp_path / "gone.csv")))


def test_without_any_judgment_it_says_what_to_add():
    with pytest.raises(UsageError, match="judged_rewrites"):
        summarise(context([gap("1", 0.1)]))


def test_a_path_is_found_beside_the_recipe(tmp_path):
    write_labels(tmp_path / "labels.csv", ["1,x,1"])
    found = Config.model_validate({"labels": "labels.csv"}, context={"folder": str(tmp_path)})
    assert found.labels == str((tmp_path / "labels.csv").resolve())
    with pytest.raises(ValueError, match="no such file"):
        Config.model_validate({"labels": "no.csv"}, context={"folder": str(tmp_path)})


def test_texts_are_read_a_slice_at_a_time_and_other_columns_as_far_as_they_are_used(
    tmp_path, monkeypatch
):
    """A run of a million rewritings has some gigabytes of texts."""
    monkeypatch.setattr(context_module, "ROWS_AT_ONCE", 2)
    gaps = [gap(str(i), 0.1) | {"answer": "text", "rewriting": f"r{i % 4}"} for i in range(5)]
    judged = [verdict(str(i), -1.0, rewriting=f"r{i % 3}") for i in range(5)]
    whole = context(gaps, judged)
    config, over_frames = whole
    files = NoTexts(tmp_path, over_frames.frames, monkeypatch, texts={"rewriting"})
    (table,) = summarise((config, msgspec.structs.replace(over_frames, frames=files)))
    assert table == summarise(whole)[0]
    (line,) = lines(table)
    assert line["texts"] == 3
    assert files.longest == 2
    assert files.read >= {"d", "verdict", "rewriting"}
    assert not files.read & {"answer", "message", "cause"}
