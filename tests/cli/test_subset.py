"""`--subset`: a random part of the items, which a larger one extends without asking again."""

import json

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
