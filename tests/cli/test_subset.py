"""`--subset`: a random part of the items, which a larger one extends without asking again."""

import json

import polars as pl
import pytest

GOOD = ["1", "3", "10%", "12.5%", "100%", "100.0%", "0.1%"]
BAD = ["0", "0%", "0.0%", "101%", "100.1%", "-1", "x", "1.5", "%", "", "٣", "1e1", "010%"]


def planned(command, *arguments):
    code, out, err = command("plan", "--json", *arguments)
    assert code == 0, err
    return json.loads(out)["n_items"]


@pytest.mark.parametrize(("part", "n"), [("3", 3), ("50%", 3), ("1%", 1), ("100%", 6), ("99", 6)])
def test_a_number_or_a_share_of_the_items_is_planned(command, recipe, part, n):
    assert planned(command, recipe(), "--subset", part) == n
    written = int(part) if part.isdecimal() else part
    assert planned(command, recipe(subset=written)) == n
    # What is given on the command line replaces what the recipe says.
    assert planned(command, recipe(subset=2), "--subset", part) == n


@pytest.mark.parametrize("part", BAD)
def test_what_is_no_part_is_refused(command, recipe, here, part):
    code, _, err = command("plan", recipe(), f"--subset={part}")
    assert code == 2
    assert "argument --subset: expected a number of items of at least 1, or a share" in err
    if part not in {"0", "-1", "1.5"}:
        # These are faults of another kind in YAML, where they are numbers.
        code, _, err = command("check", recipe(subset=part))
        assert code == 2
        assert "made.yaml:1: subset: " in err


@pytest.mark.parametrize("part", GOOD)
def test_command_line_and_recipe_take_the_same(command, recipe, part):
    assert command("plan", recipe(), "--subset", part)[0] == 0
    written = int(part) if part.isdecimal() else part
    assert command("check", recipe(subset=written))[0] == 0


def test_it_is_a_part_of_the_items_that_the_limit_leaves(command, recipe):
    assert planned(command, recipe(), "--limit", "4", "--subset", "50%") == 2


@pytest.mark.parametrize("part", ["0/4", "5/4", "1", "1/0", "x/2", "-1/2", "1/2/3", "٣/4", ""])
def test_what_is_no_shard_is_refused(command, recipe, part):
    code, _, err = command("plan", recipe(), f"--shard={part}")
    assert code == 2
    assert "argument --shard: expected I/N from 1/N to N/N" in err


def test_a_shard_that_decides_from_all_items_or_is_empty_is_refused(command, recipe):
    code, _, err = command("plan", recipe(), "--shard", "1/7")
    assert (code, "use at most 6" in err) == (2, True)
    pairs = recipe(statistics={"stop_when": {"ranking": "resolved"}}, name="pairs")
    code, _, err = command("plan", pairs, "--shard", "1/2")
    assert code == 2
    assert "stop_when" in err


def test_runs_of_all_shards_are_merged_into_the_run_of_all_items(command, recipe, here):
    path = recipe()
    assert command("run", path, "-q", "--run-dir", "whole")[0] == 0
    sizes = []
    for part in (1, 2, 3, 4):
        assert command("run", path, "-q", "--shard", f"{part}/4")[0] == 0
        items = pl.read_parquet(here / "runs" / f"made.shard-{part}-of-4" / "results/items.parquet")
        sizes.append(len(items))
    assert sizes == [2, 2, 1, 1]
    shards = sorted(str(one) for one in (here / "runs").glob("made.shard-*"))
    assert command("runs", "merge", *shards, "--into", "runs/made")[0] == 0
    assert command("run", path, "-q")[0] == 0
    assert json.loads(command("status", "made", "--json")[1])["requests_sent"] == 0
    frames = {one.name for one in (here / "whole" / "results").glob("*.parquet")}
    assert frames
    for name in frames:
        one, other = (folder / "results" / name for folder in (here / "whole", here / "runs/made"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_larger_subset_asks_only_what_is_new(command, recipe):
    path = recipe()

    def requests(part):
        assert command("run", path, "-q", "--subset", part)[0] == 0
        return json.loads(command("status", "made", "--json")[1])["requests_sent"]

    first = requests("2")
    assert first > 0
    assert requests("4") == first
    assert requests("4") == 0
