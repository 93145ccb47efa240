"""The papers' own inputs, as their authors published them: our numbers of them beside theirs."""

import re
import subprocess
import sys

import numpy as np
import pytest
import yaml

import orchestrator
from benchmarks.published import glass_box, peers
from orchestrator.errors import EXIT_COMPLETE, RecipeError
from tests.conftest import ROOT, SHARED
from tests.e2e.runs import run

RECIPE = ROOT / "benchmarks" / "published" / "peer_elo.yaml"
PAGE = ROOT / "docs" / "papers.md"
SELF_EVAL = SHARED / "data" / "published" / "self_eval"
LLM_SELF_EVAL = SHARED / "data" / "published" / "llm_self_eval"
N_VOTES = 36 * 7 * 79


@pytest.fixture(scope="module")
def table1():
    if not SELF_EVAL.is_dir():
        pytest.skip("../shared is absent")
    return {(line.model, line.method): line for line in glass_box.lines(SELF_EVAL)}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    if not LLM_SELF_EVAL.is_dir():
        pytest.skip("../shared is absent")
    path = tmp_path_factory.mktemp("peers") / "peers.jsonl"
    script = ROOT / "benchmarks" / "published" / "peers.py"
    subprocess.run([sys.executable, script, LLM_SELF_EVAL, path], check=True, timeout=120)
    return path


@pytest.mark.parametrize(
    ("model", "bench", "place"),
    [("Vicuna-7B", "mt_bench", 0), ("LLaMA2-7B-Chat", "vicuna_bench", 3)],
)
def test_sent_prob_of_the_released_numbers_is_the_printed_one_with_its_sign(
    table1, model, bench, place
):
    found = table1[model, "SentProb"].found[bench]
    in_print = glass_box.printed()[model, "SentProb"][place : place + 3]
    assert all(value < 0 for value in found)
    assert [round(-value, 4) for value in found] == list(in_print)


def test_no_other_printed_line_is_that_of_the_file_of_its_name(table1):
    """Those of the page's list are; a file that gave one more would change what the page says."""
    same = {
        (model, method, bench)
        for (model, method), numbers in glass_box.printed().items()
        for bench, place in (("mt_bench", 0), ("vicuna_bench", 3))
        if (line := table1.get((model, method))) and bench in line.found
        and np.allclose(np.abs(line.found[bench]), numbers[place : place + 3], atol=6e-5)
    }  # fmt: skip
    assert same == {
        ("Vicuna-7B", "SentProb", "mt_bench"),
        ("LLaMA2-7B-Chat", "SentProb", "vicuna_bench"),
    }


def test_a_rank_correlation_of_llama_is_printed_for_vicuna(table1):
    """The page says so: Kendall and Spearman of Vicuna-7B's PrmEnsem-Exp on Vicuna-Bench."""
    _, kendall, spearman = table1["LLaMA2-7B-Chat", "PrmEnsem-Exp of Softmax-Var"].found[
        "vicuna_bench"
    ]
    assert (round(kendall, 4), round(spearman, 4)) == glass_box.printed()[
        "Vicuna-7B", "PrmEnsem-Exp"
    ][4:6]


def test_average_is_that_of_pearson_over_both_benchmarks(table1):
    line = table1["LLaMA2-7B-Chat", "Softmax-Var"]
    assert line.average == pytest.approx(np.mean([one[0] for one in line.found.values()]))
    assert table1["Vicuna-7B", "SentProb"].average is None


def test_the_page_has_the_table_as_the_command_prints_it(table1):
    assert table1
    assert glass_box.table(SELF_EVAL) in PAGE.read_text("utf-8")


def test_what_can_not_be_made_of_the_released_files_is_said(table1):
    assert table1
    page = PAGE.read_text("utf-8").partition("The rest of Table 1 can't be made")[2]
    spellings = {"GPT3.5-Turbo": "GPT-3.5-Turbo", "PrmtEnsem-Var": "PrmEnsem-Var"}
    named = page.partition("\n\n")[0]
    for _, methods, _, _ in glass_box.left_out(SELF_EVAL):
        assert all(spellings.get(one, one) in named for one in methods.split(", ")), methods
    said = {
        (model, method, bench)
        for model, methods, benches, _ in glass_box.left_out(SELF_EVAL)
        for method in methods.split(", ")
        for bench in benches.split(" and ")
    }
    made = {
        (model, method.partition(" of ")[0], glass_box.BENCHMARKS[bench][0])
        for (model, method), line in table1.items()
        for bench in line.found
    }
    names = [name for name, _ in glass_box.BENCHMARKS.values()]
    all_cells = {(*one, name) for one in glass_box.printed() for name in names}
    assert said.isdisjoint(made)
    assert said | (made & all_cells) == all_cells


def test_rows_columns_and_names_are_those_of_the_paper():
    paper = SHARED / "papers" / "glass_box_self_evaluation.txt"
    if not paper.exists():
        pytest.skip("../shared is absent")
    text = paper.read_text("utf-8")
    start, end = text.index("Model\tMethod\tMT-Bench"), text.index("Table 1: Experiment results")
    model, in_print = "", {}
    for line in text[start:end].splitlines():
        first, *cells = line.split("\t")
        if cells[1:] and re.fullmatch(r"0\.\d+", cells[1]):
            model = first or model
            in_print[model, cells[0]] = tuple(map(float, cells[1:]))
    assert list(in_print.items()) == list(glass_box.printed().items())
    columns = [cell for cell in text[start:].splitlines()[1].split("\t") if cell]
    assert tuple(columns) == (*glass_box.HEADER[1], "Average")


def rated(answers, run_dir, similarity):
    """A run of the published recipe; its result."""
    changed = (f"dataset.path={answers}", f"methods.0.similarity={similarity}")
    done = run(RECIPE, run_dir, *(part for one in changed for part in ("--set", one)))
    assert done.returncode == EXIT_COMPLETE, done.stderr
    return orchestrator.load(run_dir)


def cells(result, key, name):
    """A column of a table by model, values without their intervals."""
    (table,) = [table for table in result.tables if table.key == key]
    place = [column.name for column in table.columns].index(name)
    return {row[0]: getattr(row[place], "value", row[place]) for row in table.rows}


def order(numbers):
    return sorted(numbers, key=numbers.get, reverse=True)


def test_the_recipe_has_the_published_ratings_and_wins():
    (analysis,) = yaml.safe_load(RECIPE.read_text("utf-8"))["analyses"]
    for place, numbers in enumerate(analysis["official"].values()):
        assert numbers == {name: printed[place] for name, printed in peers.PRINTED.items()}


@pytest.mark.slow
def test_the_published_answers_give_all_published_votes_by_rouge_l(answers, tmp_path):
    result = rated(answers, tmp_path / "run", "{kind: rouge_l}")
    counts = result.frames["peer_votes"].select("wins_a", "wins_b", "ties", "undefined")
    assert sum(counts.sum().row(0)) == N_VOTES
    # Two neighbours are exchanged; the published similarity is another.
    places = [
        list(peers.PRINTED).index(name) for name in order(cells(result, "peer_elo", "rating"))
    ]
    assert [place for place, found in enumerate(places) if place != found] == [5, 6]


BY_PACKAGE = {
    "ChatGPT": 3034, "Claude-instant": 2854, "PaLM-v2": 2435, "Vicuna-13B": 2260,
    "ChatGLM-6B": 2231, "Oasst-Pythia-12B": 1800, "RWKV-14b": 1921, "mpt-7b-chat": 1407,
    "Dolly-V2-12B": 347,
}  # fmt: skip
"""Wins by the package `rouge`, of `benchmarks/published/peer_votes.py` on 2026-11-27."""


@pytest.mark.slow
def test_by_sentence_the_wins_are_those_of_the_package_of_the_source(answers, tmp_path):
    result = rated(answers, tmp_path / "run", "{kind: rouge_l, tokens: sentences}")
    assert cells(result, "peer_elo.elo", "wins") == BY_PACKAGE
    assert set(result.frames["peer_votes"]["similarity"]) == {"rouge_l:sentences"}


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_the_published_answers_give_the_published_order_by_the_default_encoder(answers, tmp_path):
    result = rated(answers, tmp_path / "run", "{kind: bertscore}")
    for key, name in (
        ("peer_elo", "rating"),
        ("peer_elo.elo", "as published"),
        ("peer_elo.elo", "wins"),
    ):
        assert order(cells(result, key, name)) == list(peers.PRINTED), name


def test_a_folder_that_was_emptied_is_named_with_what_to_do(tmp_path):
    (tmp_path / "ChatGPT").touch()
    with pytest.raises(ValueError, match=r"no answers; check out b98c354~1"):
        peers.joined(tmp_path)


def test_files_of_different_lengths_are_refused(tmp_path):
    (tmp_path / "one").write_text("a\nb\n")
    (tmp_path / "two").write_text("a\n")
    with pytest.raises(ValueError, match="different lengths"):
        peers.joined(tmp_path)


RECIPES = {"glass_box": 3, "peer_elo": 1, "probdiff": 1}


@pytest.fixture
def shared_data(monkeypatch):
    if not SHARED.is_dir():
        pytest.skip("../shared is absent")
    monkeypatch.setenv("ORCHESTRATOR_DATA", str(SHARED / "data"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_of_published_inputs_says_what_is_absent(recipe, shared_data):
    with pytest.raises(RecipeError) as caught:
        orchestrator.check(RECIPE.with_stem(recipe))
    lines = str(caught.value).splitlines()
    assert len(lines) == RECIPES[recipe]
    assert all("no such fi" in line or "no such fo" in line for line in lines)


@pytest.mark.parametrize(
    ("recipe", "link", "data"),
    [
        ("probdiff", "ProbDiff/generation_task/data", "probdiff"),
        ("glass_box", "data", "self_eval"),
        ("probdiff_ablation", "data", "self_eval"),
    ],
)
@pytest.mark.models
def test_beside_the_published_data_a_recipe_has_no_fault(recipe, link, data, tmp_path, shared_data):
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(SHARED / "data" / "published" / data)
    copied = tmp_path / "recipe.yaml"
    copied.write_text(RECIPE.with_stem(recipe).read_text("utf-8"), "utf-8")
    orchestrator.check(copied)
