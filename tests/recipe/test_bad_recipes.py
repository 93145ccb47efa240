"""Every recipe in `bad/` leads to exactly the message beside it, and gives away no secret."""

import os
from pathlib import Path

import pytest

from orchestrator import plugins
from orchestrator.errors import RecipeError
from orchestrator.plugins import DATASETS
from orchestrator.recipe.load import load

BAD = Path(__file__).parent / "bad"
RECIPES = sorted(path.name for path in BAD.glob("*.yaml"))


# Lists of kinds grow with every plug-in, so the messages beside the recipes leave them open.
FAMILIES = {"{methods}": plugins.METHODS, "{datasets}": DATASETS}


def message_of(name: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load(name, allow_code=True)
    message = str(caught.value) + "\n"
    message = message.replace(str(Path(__file__).parents[1]), "{tests}")
    # The kind of server that these tests bring along.
    message = message.replace("scripted, ", "")
    for place, family in FAMILIES.items():
        message = message.replace(", ".join(plugins.kinds(family)), place)
    return message


@pytest.mark.parametrize("name", RECIPES)
def test_the_message_is_the_one_beside_the_recipe(name, monkeypatch):
    monkeypatch.chdir(BAD)
    assert message_of(name) == (BAD / name).with_suffix(".txt").read_text(encoding="utf-8")


def test_five_faults_are_all_named_with_their_lines(monkeypatch):
    monkeypatch.chdir(BAD)
    lines = [line.split(":")[1] for line in message_of("five_faults.yaml").splitlines()]
    assert lines == ["2", "4", "9", "11", "13"]


def test_no_message_shows_a_secret(monkeypatch):
    monkeypatch.chdir(BAD)
    assert "very-secret" in (BAD / "secrets.yaml").read_text(encoding="utf-8")
    assert "very-secret" not in message_of("secrets.yaml")


def test_there_is_a_message_for_every_recipe_and_no_other():
    texts = sorted(path.stem for path in BAD.glob("*.txt"))
    assert texts == [name.removesuffix(".yaml") for name in RECIPES]


def main() -> None:
    """Write the messages anew."""
    os.chdir(BAD)
    for name in RECIPES:
        Path(name).with_suffix(".txt").write_text(message_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
