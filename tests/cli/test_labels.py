"""Human labels: what `check` refuses, the analysis of a run, and its citation."""

import json
from pathlib import Path

import pytest

METHODS = [{"kind": "pairwise_ranking", "judges": ["judge"]}]


@pytest.fixture
def labelled(recipe):
    """A recipe with labels of pairs; the rows of the file are given."""

    def write(*rows):
        Path("labels.csv").write_text(
            "\n".join(["item,model_a,model_b,label", *rows]) + "\n", encoding="utf-8"
        )
        analysis = {"kind": "human_labels", "labels": "labels.csv"}
        return recipe(methods=METHODS, analyses=[analysis])

    return write


def items(command, recipe):
    """The keys of the items, from a run without the analysis."""
    assert command("run", recipe(methods=METHODS), "--display", "none")[0] == 0
    out = command("export", "made", "--frame", "items", "--format", "jsonl")[1]
    return [json.loads(line)["item"] for line in out.splitlines()]


def test_check_names_the_line_of_an_unknown_item_or_model(command, labelled):
    code, _, err = command("check", labelled("nowhere,weak,strong,1"))
    assert code == 2
    assert "labels.csv:2: unknown item 'nowhere'" in err


def test_labels_of_a_run_give_tables_and_citations(command, recipe, labelled):
    keys = items(command, recipe)
    path = labelled(*(f"{key},weak,strong,{'1' if i % 2 else 'tie'}" for i, key in enumerate(keys)))
    assert command("check", path)[0] == 0
    assert command("run", path, "--display", "none")[0] == 0
    found = json.loads(command("report", "made", "--format", "json")[1])
    titles = [one["title"] for one in found["tables"] if one["rows"]]
    assert "Win rates of the first model by human labels and pairwise_ranking" in titles
    bibtex = command("cite", "made", "--format", "bibtex")[1]
    assert "angelopoulos2023ppi" in bibtex
    assert "Analysis human_labels [angelopoulos2023ppi]" in command("cite", "made")[1].replace(
        "\n", " "
    )
