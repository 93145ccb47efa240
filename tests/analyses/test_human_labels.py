"""Human labels and judge scores together: tables, files, and what is refused."""

import json
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from orchestrator.analyses._few_labels import HumanLabelsAnalysis
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import DatasetError, UsageError
from orchestrator.methods import pairwise_ranking
from orchestrator.ranking.human_labels import key_path, read_human_labels
from orchestrator.ranking.labelled import Config
from orchestrator.report.generic import generic_json
from orchestrator.statistics.means import clustered_mean
from orchestrator.statistics.prediction_powered import Labelled, corrected_mean
from orchestrator.statistics.results import Interval
from tests.core.fakes import PLAIN
from tests.summaries import judged as invented
from tests.tables import lines

TRUE = {"good": 7.0, "poor": 5.0}
BIAS = {"good": 1.5, "poor": 0.5}


def write(path, rows, columns):
    path.write_text("\n".join([columns, *rows]) + "\n", encoding="utf-8")
    return str(path)


def scores_frame(n_items=300):
    """Scores of a judge, 1.5 too kind to good and 0.5 to poor; and what people say."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(n_items):
        ease = rng.normal()
        for model, mean in TRUE.items():
            label = mean + ease + rng.normal()
            rows.append(
                {
                    "method": "rated", "item": f"i{index}", "category": None, "model": model,
                    "judge": "j", "turn": 1, "mean": label + BIAS[model] + 0.4 * rng.normal(),
                    "status": "ok", "people": label,
                }
            )  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"category": pl.String()})


@pytest.fixture
def rated(tmp_path):
    """A context over scores, and a file with labels of a random tenth of them."""

    def make(n_labels=60, **settings):
        frame = scores_frame()
        chosen = np.random.default_rng(1).permutation(len(frame))[:n_labels]
        told = frame[chosen].select("item", "model", label="people")
        file = tmp_path / "labels.csv"
        told.write_csv(file)
        source = Source("rated", "rated", PLAIN, "rated", {"mean": 1})
        frames = {"rated": frame.drop("people")}
        context = Context("human_labels", frames, pl.DataFrame(), [source], 0.95, 200, 0)
        return Config(labels=str(file), **settings), context, frame

    return make


def summarise(config, context):
    return HumanLabelsAnalysis(config).summarise(context)


def test_the_bias_of_the_judge_is_taken_out(rated):
    config, context, frame = rated(n_labels=120)
    for line in lines(summarise(config, context)[0]):
        model = line["model"]
        true = frame.filter(pl.col("model") == model)["people"].mean()
        assert line["corrected"].low < true < line["corrected"].high
        assert line["judge alone"].low > true
        assert line["judge minus people"].low < BIAS[model] < line["judge minus people"].high
        assert line["worth labels"] > 2 * line["labels"]


def test_numbers_are_those_of_the_statistics(rated):
    config, context, frame = rated()
    told = pl.read_csv(config.labels)
    joined = frame.join(told, on=["item", "model"], how="left", maintain_order="left")
    of_good = joined.filter(pl.col("model") == "good")
    label = of_good["label"].fill_null(np.nan).to_numpy()
    expected = corrected_mean(Labelled(of_good["mean"].to_numpy(), label, np.arange(len(of_good))))
    line = lines(summarise(config, context)[0])[0]
    assert line["corrected"].value == pytest.approx(expected.value)
    interval = expected.estimate().interval
    assert isinstance(interval, Interval)
    assert line["corrected"].low == pytest.approx(interval.low)
    assert line["lambda"] == pytest.approx(expected.tuning)
    assert line["labels alone"].value == pytest.approx(np.nanmean(label))


def test_models_are_compared_on_the_prompts_that_they_share(rated):
    config, context, _ = rated(n_labels=600)
    (line,) = lines(summarise(config, context)[1])
    frame = scores_frame()
    gaps = (
        frame.filter(pl.col("model") == "good")["people"].to_numpy()
        - frame.filter(pl.col("model") == "poor")["people"].to_numpy()
    )
    paired = clustered_mean(gaps, np.arange(300))
    assert line["corrected"].value == pytest.approx(paired.value)
    assert paired.interval is not None
    assert line["corrected"].low == pytest.approx(paired.interval.low)


def test_scores_of_another_scale_are_mapped(rated):
    config, context, _ = rated(scale=(-10.0, 30.0), judge_scale=(-10.0, 30.0))
    same = lines(summarise(config, context)[0])[0]
    config, context, _ = rated(scale=(-10.0, 30.0), judge_scale=(-20.0, 60.0))
    other = lines(summarise(config, context)[0])[0]
    assert other["judge alone"].value == pytest.approx(-10 + (same["judge alone"].value + 20) / 2)


def test_few_labels_are_said_to_be_few(rated):
    table = summarise(*rated(n_labels=8)[:2])[0]
    assert any("fewer than 20 labelled prompts" in note for note in table.notes)


def test_a_model_without_labels_has_no_number_and_a_reason(rated):
    config, context, _ = rated()
    told = pl.read_csv(config.labels).filter(pl.col("model") == "good")
    told.write_csv(config.labels)
    poor = lines(summarise(config, context)[0])[1]
    assert (poor["corrected"].value, poor["corrected"].why) == (None, "no labels")
    assert poor["judge alone"].value is not None


def test_labels_of_what_was_not_judged_are_counted(rated):
    config, context, _ = rated()
    with Path(config.labels).open("a", encoding="utf-8") as file:
        file.write("elsewhere,good,3\n")
    assert "1 labels are of answers" in " ".join(summarise(config, context)[0].notes)


def test_an_empty_file_says_what_to_do(rated):
    config, context, _ = rated()
    write(Path(config.labels), ["i1,good,"], "item,model,label")
    with pytest.raises(UsageError, match="has no label yet; fill in its column 'label'"):
        summarise(config, context)


# -- pairs ---------------------------------------------------------------------------------------


def pairs_frame(n_items=200):
    """Judgments of a judge that likes the good model too much; and what people say."""
    rng = np.random.default_rng(2)
    rows, people = [], []
    for index in range(n_items):
        felt = rng.normal(0.5)
        share = 1 / (1 + np.exp(-2 * (felt + 0.5 + 0.5 * rng.normal())))
        both = invented.leaning(share), invented.leaning(1 - share)
        rows.append(invented.pair_row(f"i{index}", "good", "poor", *both))
        people.append("1" if felt > 0 else "2")
    return invented.pairs(rows), people


@pytest.fixture
def judged(tmp_path):
    def make(turned=(), n_labels=80):
        frame, people = pairs_frame()
        rows = [
            f"i{i},poor,good,{'2' if people[i] == '1' else '1'}"
            if i in turned
            else f"i{i},good,poor,{people[i]}"
            for i in range(n_labels)
        ]
        file = write(tmp_path / "pairs.csv", rows, "item,model_a,model_b,label")
        method = pairwise_ranking.Kind(pairwise_ranking.Config(judges=("judge",)))
        source = Source("pairwise_ranking", "pairwise_ranking", method, "judgments")
        frames = {"judgments": frame}
        context = Context("human_labels", frames, pl.DataFrame(), [source], 0.95, 200, 0)
        return Config(labels=file), context, people

    return make


def test_win_rates_of_pairs_lie_in_bounds_and_hold_what_people_say(judged):
    config, context, people = judged()
    true = np.mean([said == "1" for said in people])
    (line,) = lines(summarise(config, context)[0])
    assert line["pair"] == "good against poor"
    assert 0 <= line["corrected"].low < true < line["corrected"].high <= 1
    width = line["corrected"].high - line["corrected"].low
    assert width < line["labels alone"].high - line["labels alone"].low


def test_all_tables_can_be_written_as_json(rated, judged):
    for make in (rated, judged):
        for table in summarise(*make()[:2]):
            assert json.loads(json.dumps(generic_json(table)))["rows"]


def test_the_order_in_which_a_pair_was_shown_does_not_matter(judged):
    config, context, _ = judged()
    plain = summarise(config, context)
    config, context, _ = judged(turned=range(0, 80, 2))
    assert [table.rows for table in summarise(config, context)] == [t.rows for t in plain]


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ("item,model,label", "x,good,3", "labels.csv:2: unknown item 'x'"),
        ("item,model,label", "i1,great,3", "labels.csv:2: unknown model 'great'; available: good"),
        ("item,model,label", "i1,good,11", "labels.csv:2: the label 11 is not on the scale from 1"),
        ("item,model,label", "i1,good,fine", "labels.csv:2: the label must be a number"),
        ("item,model,label", "i1,good,3\ni1,good,4", "labels.csv:3: a second label of the same"),
        ("item,label", "i1,3", "labels.csv:2: name either the model, or model_a and model_b"),
        ("item,model,score", "i1,good,3", "labels.csv: no column 'label'"),
        ("item,model_a,model_b,label", "i1,good,poor,3", "the label of a pair is 1, 2 or tie"),
        ("item,model_a,model_b,label", "i1,good,good,1", "a pair of 'good' with itself"),
        (
            "item,model_a,model_b,label",
            "i1,good,poor,1\ni1,poor,good,1",
            "labels.csv:3: a second label of the same",
        ),
        ("item,model,turn,label", "i1,good,x,3", "labels.csv:2: the turn must be a number"),
        ("item,model,label,probability", "i1,good,3,0.5", "were not drawn at random alike"),
        ("code,label", "c1,3", "needs the key file labels.key.jsonl beside it"),
    ],
)
def test_faults_of_a_file_name_the_line(tmp_path, columns, row, said):
    file = tmp_path / "labels.csv"
    write(file, [row], columns)
    check = HumanLabelsAnalysis(Config(labels=str(file), scale=(1.0, 10.0))).check
    with pytest.raises(DatasetError) as error:
        check(lambda: {"i1"}, {"good": None, "poor": None})
    assert said in str(error.value)


def test_a_key_file_says_what_a_code_is_about(tmp_path):
    file = tmp_path / "labels.csv"
    write(file, ["c2,tie", "c1,", "c3,1"], "code,label")
    about = [
        {"code": f"c{n}", "item": f"i{n}", "turn": 1, "model_a": "b", "model_b": "a"}
        for n in (1, 2, 3)
    ]
    key_path(file).write_text("\n".join(map(json.dumps, about)) + "\n", encoding="utf-8")
    found = read_human_labels(file)
    assert [(one.about.item, one.value, one.where) for one in found] == [
        ("i2", 0.5, "labels.csv:2"),
        ("i3", 1.0, "labels.csv:4"),
    ]
    assert found[0].about.models == ("b", "a")
    write(file, ["c9,1"], "code,label")
    with pytest.raises(DatasetError, match=r"labels.csv:2: unknown code 'c9'"):
        read_human_labels(file)


def test_settings_that_make_no_scale_are_refused():
    with pytest.raises(ValueError, match="the lesser first"):
        Config(labels="x", scale=(5.0, 1.0))
    with pytest.raises(ValueError, match="needs 'scale'"):
        Config(labels="x", judge_scale=(1.0, 5.0))


def test_settings_round_trip():
    config = Config(labels="x", scale=(1.0, 5.0))
    assert Config.model_validate(msgspec.json.decode(config.model_dump_json())) == config
