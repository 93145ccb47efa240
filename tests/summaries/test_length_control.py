"""AlpacaEval's length-controlled win rate: only with difficulties, from files; fitted once."""

import csv
import json
import os

import msgspec
import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from orchestrator.clusters import Clusters
from orchestrator.contracts.method import frame_of, schema_of
from orchestrator.dataset import from_items
from orchestrator.frames import polars_schema
from orchestrator.methods import alpaca_eval
from orchestrator.records import Item, Message
from orchestrator.runner.results.tables import Keeping
from orchestrator.store import RunDirectory
from orchestrator.units import settings_of
from tests.runner.test_items import exported
from tests.summaries.told import summarise
from tests.tables import lines

N = 200


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, float)))


@pytest.fixture(scope="module")
def world():
    """The model is better by a little, writes more, and the judge prefers what is longer."""
    rng = np.random.default_rng(0)
    gaps, hard = rng.normal(40, 30, N), rng.normal(size=N)
    chance = sigmoid(0.5 + 0.8 * hard + gaps / 20)
    rows = pl.DataFrame(
        [
            {"method": "alpaca_eval", "item": f"k{i}", "model": "a",
             "baseline": "base", "judge": "j",
             "preference": 2.0 if rng.random() < p else 1.0, "status": "ok",
             "n_characters": 300 + int(gap), "n_characters_baseline": 300}
            for i, (gap, p) in enumerate(zip(gaps, chance, strict=True))
        ],
        schema=polars_schema({"method": "str", **schema_of(alpaca_eval.Kind)}),
    )  # fmt: skip
    items = pl.DataFrame(
        {
            "item": [f"k{i}" for i in range(N)],
            "prompt": [f"Do {i}." for i in range(N)],
            "place": [str(i) for i in range(N)],
        }
    )
    return rows, items, hard


def table(world, control, context_of, **changed):
    rows, items, _ = world
    config = alpaca_eval.Config(
        judges=("j",), prompts="compact", baseline="base", length_control=control
    )
    frames = {frame_of(alpaca_eval.Kind, "alpaca_eval"): rows, "items": items}
    context = context_of("alpaca_eval", alpaca_eval, rows, config=config, frames=frames)
    return summarise(msgspec.structs.replace(context, **changed))[0]


def write_csv(path, heading, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(heading)
        writer.writerows(rows)
    return str(path)


@pytest.fixture
def by_item(world, tmp_path):
    rows = [(f"k{i}", value) for i, value in enumerate(world[2])]
    return write_csv(tmp_path / "difficulties.csv", ("item", "difficulty"), rows)


def test_without_difficulties_there_is_no_such_column_and_a_note_says_why(world, context_of):
    found = table(world, None, context_of)
    assert "length-controlled" not in [column.name for column in found.columns]
    assert any("to the difficulties of the instructions" in note for note in found.notes)


def test_a_preference_for_length_is_taken_out(world, context_of, by_item):
    (line,) = lines(table(world, {"difficulties": by_item}, context_of))
    controlled = line["length-controlled"]
    truth = sigmoid(0.5 + 0.8 * world[2]).mean()
    assert controlled.low < truth < controlled.high
    assert controlled.value == pytest.approx(truth, abs=0.08)
    assert controlled.value < line["win rate"].value - 0.1


@pytest.mark.parametrize("form", ["index", "unnamed", "instruction", "jsonl", "gamed"])
def test_every_form_of_the_file_gives_the_same_number(world, context_of, by_item, tmp_path, form):
    hard = world[2]
    control = {"difficulties": str(tmp_path / f"file.{'jsonl' if form == 'jsonl' else 'csv'}")}
    if form == "jsonl":
        rows = [json.dumps({"key": f"k{i}", "difficulty": d}) for i, d in enumerate(hard)]
        (tmp_path / "file.jsonl").write_text("\n".join(rows))
    elif form == "instruction":
        write_csv(tmp_path / "file.csv", ("instruction", "instruction_difficulty"),
                  [(f"Do {i}.", d) for i, d in enumerate(hard)])  # fmt: skip
    else:
        name = "" if form == "unnamed" else "index"
        write_csv(tmp_path / "file.csv", (name, "instruction_difficulty"), enumerate(hard))
    if form == "gamed":
        # Rows that weigh nothing in the fit: as likely either way at no difference in length.
        write_csv(tmp_path / "gamed.csv",
                  ("index", "std_delta_len", "instruction_difficulty", "preference"),
                  [(i, 0.0, d, 0.5) for i, d in enumerate(hard)])  # fmt: skip
        control = {"gamed": str(tmp_path / "gamed.csv")}
    (one,) = lines(table(world, {"difficulties": by_item}, context_of))
    found = table(world, control, context_of)
    (other,) = lines(found)
    near = 0.03 if form == "gamed" else 1e-9
    assert other["length-controlled"].value == pytest.approx(
        one["length-controlled"].value, abs=near
    )
    assert any("gamed" in note for note in found.notes) == (form != "gamed")


def test_an_index_is_a_place_in_the_dataset_also_where_a_stopping_rule_shuffles_it(
    world, context_of, by_item, tmp_path
):
    rows, _, hard = world
    given = [Item(key=f"k{i}", messages=(Message("user", f"Do {i}."),)) for i in range(N)]
    shuffled = from_items("x", given).shuffled(3)
    with RunDirectory.lock(tmp_path / "run") as directory:
        items = pl.read_parquet(exported(shuffled, directory))
    path = write_csv(tmp_path / "file.csv", ("index", "instruction_difficulty"), enumerate(hard))
    (one,) = lines(table(world, {"difficulties": by_item}, context_of))
    (other,) = lines(table((rows, items, hard), {"difficulties": path}, context_of))
    assert other["length-controlled"].value == pytest.approx(one["length-controlled"].value)
    # Items whose place is not known have no difficulty, rather than that of another.
    (none,) = lines(table((rows, items.drop("place"), hard), {"difficulties": path}, context_of))
    assert "200 of 200 judged items have no difficulty" in none["length-controlled"].why


@pytest.mark.parametrize(
    ("heading", "row", "words"),
    [
        (("item", "difficulty"), ("k0", 1.0), "199 of 200 judged items have no difficulty"),
        (("item", "difficulty"), ("k0", "hard"), "no number in difficulty"),
        (("who", "difficulty"), ("k0", 1.0), "has no item"),
        (("item", "difficulty"), None, "has no rows"),
    ],
)
def test_a_file_that_will_not_do_says_why_in_the_cell(
    world, context_of, tmp_path, heading, row, words
):
    path = write_csv(tmp_path / "file.csv", heading, [] if row is None else [row])
    (line,) = lines(table(world, {"difficulties": path}, context_of))
    assert line["length-controlled"].value is None
    assert words in line["length-controlled"].why
    assert line["win rate"].value is not None


def test_a_pipe_in_place_of_the_file_is_not_waited_for(world, context_of, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    control = {"difficulties": str(tmp_path / "pipe.csv")}
    (line,) = lines(table(world, control, context_of))
    assert line["length-controlled"].why == "pipe.csv cannot be read: not a file"


def test_equal_lengths_everywhere_say_why_nothing_is_controlled(world, context_of, by_item):
    rows, items, hard = world
    equal = rows.with_columns(n_characters=pl.col("n_characters_baseline"))
    (line,) = lines(table((equal, items, hard), {"difficulties": by_item}, context_of))
    assert "nothing to control for" in line["length-controlled"].why


def test_one_cluster_of_prompts_gives_no_interval_and_says_so(world, context_of, by_item):
    rows, items, hard = world
    together = Clusters(items.with_columns(cluster=pl.lit("c")))
    control = {"difficulties": by_item}
    (line,) = lines(table((rows, items, hard), control, context_of, clusters=together))
    cell = line["length-controlled"]
    assert (cell.low, cell.why) == (None, "one independent prompt: no interval")
    assert cell.value is not None


def test_difficulties_come_from_a_file():
    with pytest.raises(ValidationError, match="give 'difficulties', or 'gamed'"):
        alpaca_eval.LengthControl.model_validate({})


def test_the_setting_makes_no_rows_stale(by_item):
    given = {"judges": ("j",), "prompts": "compact", "baseline": "base"}
    one = alpaca_eval.Config(**given)
    two = alpaca_eval.Config(**given, length_control={"difficulties": by_item})
    assert settings_of(one) == settings_of(two)


@pytest.mark.parametrize("content", ["{", "[]", '{"00": "x"}', "[" * 100_000])
def test_what_is_kept_is_not_believed_where_it_is_damaged(tmp_path, content):
    (tmp_path / ".numbers").write_text(content)
    keeping = Keeping(tmp_path / ".numbers")
    found = keeping.once(lambda: b"\x00", float, lambda: 50.0)
    assert found == 50.0


def test_a_link_in_place_of_the_kept_file_is_neither_read_nor_written_through(tmp_path):
    target = tmp_path / "elsewhere"
    value = json.dumps({"00": 1.0})
    target.write_text(value)
    (tmp_path / ".numbers").symlink_to(target)
    keeping = Keeping(tmp_path / ".numbers")
    found = keeping.once(lambda: b"\x00", float, lambda: 50.0)
    keeping.save()
    assert found == 50.0
    assert target.read_text() == value
