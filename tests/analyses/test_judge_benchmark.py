import numpy as np
import polars as pl
import pytest

from orchestrator.analyses.judge_benchmark import LAYOUTS, Config, Kind
from orchestrator.contracts.context import Context, Source
from orchestrator.methods import pairwise_ranking, pointwise
from tests.core.fakes import method_in
from tests.summaries import judged
from tests.tables import lines

# RewardBench's paper (arXiv 2403.13787, Table 1): items of each subset of the filtered split.
REWARD_BENCH = {
    "alpacaeval-easy": 100, "alpacaeval-length": 95, "alpacaeval-hard": 95, "mt-bench-easy": 28,
    "mt-bench-med": 40, "mt-bench-hard": 37, "llmbar-natural": 100, "llmbar-adver-neighbor": 134,
    "llmbar-adver-GPTInst": 92, "llmbar-adver-GPTOut": 47, "llmbar-adver-manual": 46,
    "refusals-dangerous": 100, "refusals-offensive": 100, "xstest-should-refuse": 154,
    "xstest-should-respond": 250, "donotanswer": 136, "math-prm": 447, "hep-cpp": 164,
    "hep-go": 164, "hep-java": 164, "hep-js": 164, "hep-python": 164, "hep-rust": 164,
}  # fmt: skip
RIGHT, WRONG, TIE = (judged.leaning(lean) for lean in (0.8, 0.2, 0.5))


def pair(item, category, ab, ba):
    """Both distributions are in the view of the chosen answer; the second is shown second."""
    row = judged.pair_row(item, "chosen", "rejected", ab, list(reversed(ba)))
    return {**row, "category": category}


def tables(rows, config=None, module=pairwise_ranking):
    method = method_in(module)(module.Config(judges=("judge",)))
    frame = judged.frame(module, rows)
    source = Source(frame["method"][0], frame["method"][0], method, method.frame)
    context = Context("bench", {method.frame: frame}, pl.DataFrame(), [source], 0.95, 200, 0)
    analysis = Kind(config or Config())
    return {table.key: table for table in analysis.summarise(context)}


def test_sections_are_those_of_the_papers():
    layout = LAYOUTS["reward_bench"]
    sections = {name: layout.section_of(name) for name in REWARD_BENCH}
    counts = {
        section: sum(n for name, n in REWARD_BENCH.items() if sections[name] == section)
        for section in layout.sections
    }
    assert counts == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 1431}
    assert sum(counts.values()) == 2985
    code = sum(n for name, n in REWARD_BENCH.items() if name.startswith("hep-"))
    assert layout.weights["math-prm"] * REWARD_BENCH["math-prm"] == pytest.approx(code)
    judge_bench = LAYOUTS["judge_bench"]
    assert judge_bench.section_of("mmlu-pro-computer science") == "Knowledge"
    assert judge_bench.section_of("livecodebench") == "Coding"


def test_reward_bench_is_the_mean_of_weighted_sections():
    share = {"alpacaeval-easy": 1.0, "llmbar-natural": 0.5, "donotanswer": 0.25, "math-prm": 0.5,
             "hep-go": 1.0}  # fmt: skip
    rows = []
    for category, right in share.items():
        for k in range(20):
            said = RIGHT if k < 20 * right else WRONG
            rows.append(pair(f"{category}{k}", category, said, said))
    (row,) = lines(tables(rows)["judge_benchmark"])
    weight = 984 / 447
    reasoning = (weight * 0.5 + 1.0) / (weight + 1.0)
    expected = {"Chat": 1.0, "Chat Hard": 0.5, "Safety": 0.25, "Reasoning": reasoning}
    for name, value in expected.items():
        assert row[name].value == pytest.approx(value)
        assert row[name].low < row[name].high
    assert row["mean of sections"].value == pytest.approx(np.mean(list(expected.values())))


def test_judge_bench_counts_what_is_right_on_balance_of_both_orders():
    cases = [(RIGHT, RIGHT), (RIGHT, TIE), (RIGHT, WRONG), (TIE, TIE), (WRONG, WRONG)]
    rows = [pair(f"q{k}", "mmlu-pro-law", ab, ba) for k, (ab, ba) in enumerate(cases)]
    (row,) = lines(tables(rows)["judge_benchmark"])
    assert row["Knowledge"].value == row["all"].value == pytest.approx(2 / 5)
    assert row["Coding"].why == "no pair"
    (subset,) = lines(tables(rows)["judge_benchmark.subsets"])
    assert subset["right in both orders"].value == pytest.approx(1 / 5)
    assert subset["orders agree"].value == pytest.approx(3 / 5)


def test_llm_bar_has_the_mean_of_both_orders():
    cases = [(RIGHT, RIGHT), (RIGHT, WRONG), (WRONG, TIE)]
    rows = [pair(f"q{k}", "GPTOut", ab, ba) for k, (ab, ba) in enumerate(cases)]
    (row,) = lines(tables(rows)["judge_benchmark"])
    assert row["GPTOut"].value == pytest.approx((1.0 + 0.5 + 0.25) / 3)
    assert row["mean of sections"].why == "a section has no pair"


# Counts that LLMBar's repository keeps of its judges (Vanilla*): subset, pairs, right in one order,
# in the other and in both, orders that agree, and accuracy (Acc.) in percent.
COUNTED = {
    "GPT-4": ("Natural", 100, 95, 96, 93, 95, 95.5),
    "LLaMA2": ("Natural", 100, 79, 82, 70, 79, 80.5),
    "Falcon": ("Natural", 100, 71, 77, 50, 52, 74.0),
    "GPT-4, adversarial": ("GPTOut", 47, 35, 38, 35, 44, 77.6595744680851),
}


@pytest.mark.parametrize("judge", COUNTED)
def test_verdicts_as_counted_by_llm_bar_have_its_figures(judge):
    subset, n, one, other, both, agreed, accuracy = COUNTED[judge]
    cases = [(RIGHT, RIGHT)] * both + [(RIGHT, WRONG)] * (one - both)
    cases += [(WRONG, RIGHT)] * (other - both) + [(WRONG, WRONG)] * (agreed - both)
    assert len(cases) == n
    found = tables([pair(f"q{k}", subset, ab, ba) for k, (ab, ba) in enumerate(cases)])
    (row,) = lines(found["judge_benchmark"])
    assert row[subset].value == pytest.approx(accuracy / 100)
    (part,) = lines(found["judge_benchmark.subsets"])
    assert part["right in both orders"].value == pytest.approx(both / n)
    assert part["orders agree"].value == pytest.approx(agreed / n)


def test_other_categories_have_a_section_each_and_the_preference_decides():
    rows = [pair("a", "odd", RIGHT, RIGHT), pair("b", "even", WRONG, WRONG)]
    (row,) = lines(tables(rows)["judge_benchmark"])
    assert (row["odd"].value, row["even"].value, row["all"].value) == (1.0, 0.0, 0.5)


def test_a_judge_of_single_answers_has_no_verdict_by_order():
    rows = [
        {**judged.score_row(f"q{k}", model, judged.around(score)), "category": "GPTOut"}
        for k in range(3)
        for model, score in (("chosen", 7.0), ("rejected", 3.0))
    ]
    found = tables(rows, module=pointwise)
    (row,) = lines(found["judge_benchmark"])
    assert row["GPTOut"].value == 1.0
    assert any("no verdict by order" in note for note in found["judge_benchmark"].notes)


def test_reward_bench_2_counts_the_prompts_whose_right_answer_beats_every_wrong_one():
    wrong = ("rejected_1", "rejected_2", "rejected_3")
    cases = {
        "all": (RIGHT, RIGHT, RIGHT),
        "one lost": (RIGHT, WRONG, RIGHT),
        "tied with two": (RIGHT, TIE, TIE),
        "one missing": (RIGHT, RIGHT),
    }
    rows = [
        {
            **judged.pair_row(item, "chosen", other, said, list(reversed(said))),
            "category": "Math",
        }
        for item, verdicts in cases.items()
        for other, said in zip(wrong, verdicts, strict=False)
    ]
    among = judged.pair_row("all", "rejected_1", "rejected_2", WRONG, list(reversed(WRONG)))
    table = tables([*rows, {**among, "category": "Math"}])["judge_benchmark"]
    (row,) = lines(table)
    assert row["Math"].value == pytest.approx((1 + 0 + 1 / 3) / 3)
    assert row["prompts"] == 3
    assert "pairwise_ranking: 1 prompts were not judged" in table.notes
