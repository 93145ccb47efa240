"""`orchestrator cite`: a methods paragraph and BibTeX."""

import json

import pytest

from orchestrator.references import entries


@pytest.fixture
def ranked(command, recipe):
    """A complete run of two methods."""
    methods = [
        {"kind": "pairwise_ranking", "judges": ["judge"]},
        {"kind": "probdiff", "answer": {"max_tokens": 9, "temperature": 0.25}},
    ]
    path = recipe(methods=methods, seed=1234)
    assert command("run", path, "--display", "none")[0] == 0
    return "made"


def test_the_paragraph_says_models_prompts_sampling_seed_and_counts(command, ranked):
    code, out, err = command("cite", ranked)
    assert (code, err) == (0, "")
    paragraph, _, bibtex = out.partition("\n\n")
    for words in (
        "2 models (weak, strong)", "seed 1234", "judge judge", "prompt judgment_distribution",
        "at most 9 tokens, temperature 0.25", "95 % level", "fake-1", "0 of these failed",
        "[wang2025judgment]", "[xia2024probdiff]",
        "[bradley1952rank, gaffke2005three, holm1979simple, shaffer1986modified]",
    ):  # fmt: skip
        assert words in paragraph
    # Every work that the paragraph names has its entry.
    assert set(entries(bibtex)) == {
        "wang2025judgment", "xia2024probdiff", "bradley1952rank", "gaffke2005three",
        "holm1979simple", "shaffer1986modified", "selfeval-orchestrator",
    }  # fmt: skip


def test_bibtex_and_json_are_for_programs(command, ranked):
    bibtex = command("cite", ranked, "--format", "bibtex")[1]
    found = json.loads(command("cite", ranked, "--format", "json")[1])
    assert entries(bibtex) == found["bibtex"]
    assert found["facts"]["seed"] == 1234
    assert found["facts"]["complete"] is True
    assert [one["kind"] for one in found["facts"]["methods"]] == ["pairwise_ranking", "probdiff"]
    assert set(found["facts"]["models"]) == {"weak", "strong", "judge"}


def test_a_run_without_a_ranking_cites_no_works_on_ratings(command, recipe):
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    assert command("run", path, "--display", "none")[0] == 0
    out = command("cite", "made", "--format", "bibtex")[1]
    assert set(entries(out)) == {"selfeval-orchestrator"}


def test_the_paragraph_names_labels_of_ones_own(command, recipe):
    template = "{{ prompt }} {{ answer_a }} {{ answer_b }} First, Equal or Second?"
    method = {"kind": "pairwise_ranking", "judges": ["judge"], "prompt": template}
    path = recipe(methods=[{**method, "labels": ["First", "Equal", "Second"]}])
    assert command("run", path, "--display", "none")[0] == 0
    assert "; labels First, Equal, Second" in command("cite", "made")[1].replace("\n", " ")
