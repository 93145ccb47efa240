"""Published counts and averages that can be checked without models: facts, held against our code.

Percentages of ProbDiff's tables, in the order Pro, Math, Fund, Logic, Writ, Chi, Role, Open.
"""

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.published import glass_box, peers
from orchestrator.statistics.agreement import ranking_agreement
from orchestrator.statistics.confidence import confidence
from orchestrator.statistics.length import head_to_head
from orchestrator.statistics.resampling import Resampling
from tests.oracles.averages import micro_average, percent_half_up, round_half_up

CATEGORIES = ("Pro", "Math", "Fund", "Logic", "Writ", "Chi", "Role", "Open")
DENOMINATORS = (124, 111, 69, 95, 75, 58, 116, 38)
N_ITEMS = 683

# Second version of the paper, Tables 3, 7, 8, 9: overall, then the categories.
ALIGN_BENCH = {
    "delta 0, Qwen": (18.7, 10.5, 6.3, 8.7, 23.2, 37.3, 6.9, 37.1, 13.2),
    "delta 0, tuned": (41.6, 25.0, 43.2, 40.6, 55.8, 41.3, 27.6, 56.0, 31.6),
    "delta -0.05, Qwen": (32.2, 20.2, 18.9, 15.9, 31.6, 62.7, 13.8, 53.4, 42.1),
    "delta -0.05, tuned": (45.7, 25.0, 48.6, 43.5, 62.1, 52.0, 27.6, 60.3, 34.2),
    "delta -0.1, Qwen": (41.1, 26.6, 29.7, 26.1, 34.7, 72.0, 20.7, 65.5, 57.9),
    "delta -0.1, tuned": (50.5, 27.4, 55.0, 44.9, 70.5, 58.7, 29.3, 62.9, 47.4),
    "simple prompt, Qwen": (43.8, 26.6, 41.4, 29.0, 44.2, 66.7, 12.1, 64.7, 68.4),
    "simple prompt, tuned": (52.7, 38.7, 60.4, 59.4, 58.9, 57.3, 34.5, 56.9, 50.0),
    "same temperature, Qwen": (23.0, 20.2, 18.9, 15.9, 31.6, 38.7, 10.3, 25.9, 13.2),
    "same temperature, tuned": (41.6, 25.0, 48.6, 43.5, 62.1, 44.0, 27.6, 43.1, 28.9),
    "temperature 0.7, Qwen": (12.7, 3.2, 7.2, 7.2, 12.6, 26.7, 1.7, 28.4, 10.5),
    "temperature 0.7, tuned": (37.5, 17.7, 34.2, 31.9, 57.9, 46.7, 22.4, 51.7, 28.9),
}
# Judges of both versions on the scale 0 to 10: overall, then the categories.
JUDGES = {
    "v2 GPT-4 Qwen": (5.66, 6.28, 4.89, 7.00, 4.66, 6.56, 6.17, 6.47, 6.74),
    "v2 GPT-4 tuned": (6.60, 6.27, 5.85, 7.15, 7.12, 7.00, 5.83, 7.16, 6.89),
    "v2 CritiqueLLM Qwen": (5.22, 5.90, 4.23, 6.43, 4.28, 6.48, 5.97, 6.03, 6.34),
    "v2 CritiqueLLM tuned": (6.19, 5.58, 5.42, 6.28, 6.98, 6.77, 4.97, 6.99, 6.45),
    "v1 GPT-4 Qwen": (5.73, 6.20, 4.83, 6.85, 5.14, 6.56, 6.31, 6.49, 6.45),
    "v1 GPT-4 tuned": (6.62, 6.19, 5.62, 6.49, 6.93, 7.80, 5.86, 7.73, 7.71),
    "v1 CritiqueLLM Qwen": (5.22, 5.78, 4.19, 6.24, 4.63, 6.13, 5.78, 6.13, 6.13),
    "v1 CritiqueLLM tuned": (6.12, 5.57, 5.15, 6.25, 6.34, 7.15, 5.33, 7.11, 7.53),
}
ALIGN_BENCH_ITEMS = dict(zip(CATEGORIES, (124, 112, 68, 92, 75, 58, 116, 38), strict=True))
# SelfEval, Table 1: Pearson on MT-Bench, Pearson on Vicuna-Bench, "Average".
SELF_EVAL = [(line[0], line[3], line[6]) for line in glass_box.printed().values()]
# SentProb in that table: Pearson, Kendall, Spearman.
SENT_PROB = {
    "mt_bench/vicuna-7b/logprobs": (0.2350, 0.1706, 0.2547),
    "vicuna_bench/llama2-7b-chat/logprobs": (0.4970, 0.2304, 0.3192),
}


def counts_behind(percentages):
    """The one count out of each category's items that is printed so."""
    counts = []
    for printed, n in zip(percentages, DENOMINATORS, strict=True):
        fitting = [k for k in range(n + 1) if percent_half_up(k, n, 1) == printed]
        assert len(fitting) == 1, (printed, n)
        counts += fitting
    return counts


@pytest.mark.parametrize("row", ALIGN_BENCH)
def test_overall_of_probdiff_is_the_micro_average(row):
    overall, *categories = ALIGN_BENCH[row]
    assert percent_half_up(sum(counts_behind(categories)), N_ITEMS, 1) == overall


def test_counts_of_probdiff_on_align_bench(reference):
    inputs, outputs = reference("probdiff.alignbench.counts")
    assert tuple(inputs["implied_denominators"]) == DENOMINATORS
    rows = {"Qwen": "delta -0.05, Qwen", "Qwen_ft": "delta -0.05, tuned"}
    for model, row in rows.items():
        counts = inputs["counts"][model]
        assert counts_behind(ALIGN_BENCH[row][1:]) == counts
        names = np.repeat(CATEGORIES, DENOMINATORS)
        d = np.concatenate(
            [
                np.where(np.arange(n) < k, 0.0, -1.0)
                for k, n in zip(counts, DENOMINATORS, strict=True)
            ]
        )
        found = confidence(d, np.arange(d.size), [-0.05], categories=names.tolist())[0]
        shares = {name: 100 * share.value for name, share in found.categories}
        assert [shares[name] for name in CATEGORIES] == pytest.approx(
            outputs[model]["percent_by_category"], abs=1e-9
        )
        n_passed = found.published.value * d.size
        assert n_passed == pytest.approx(outputs[model]["sum"], abs=1e-9)
        overall = 100 * n_passed / N_ITEMS
        assert overall == pytest.approx(outputs[model]["overall_sum/683"], abs=1e-9)


@pytest.mark.parametrize("model", ["Qwen", "tuned"])
def test_confidence_of_the_second_version_falls_with_the_threshold(model):
    rows = [ALIGN_BENCH[f"delta {delta}, {model}"] for delta in ("0", "-0.05", "-0.1")]
    assert all(a <= b for low, high in pairwise(rows) for a, b in zip(low, high, strict=True))


@pytest.mark.parametrize("row", JUDGES)
def test_overall_of_align_bench_is_the_macro_average(row, align_bench_overall):
    overall, *means = JUDGES[row]
    by_name = dict(zip(CATEGORIES, means, strict=True))
    # Category means are themselves rounded to 0.01.
    assert align_bench_overall(by_name)["overall"] == pytest.approx(overall, abs=0.0101)


def test_macro_and_micro_are_not_the_same_number(reference):
    inputs, outputs = reference("alignbench.overall")
    micro = micro_average(inputs["category_means"], ALIGN_BENCH_ITEMS)
    assert micro == pytest.approx(outputs["micro_average_for_comparison"], abs=1e-9)
    assert abs(micro - JUDGES["v2 GPT-4 Qwen"][0]) > 0.3


@pytest.mark.parametrize(
    ("version", "benchmark", "total", "printed"),
    [
        ("v2", "mtbench", 160, (7.50, 17.50, 30.63, 20.00)),
        ("v1", "mtbench", 80, (32.50, 41.25, 42.50, 53.75)),
        # 51 of 805 is 6.335 %, printed as 6.33 where halves elsewhere are rounded up.
        ("v2", "alpaca", 805, (2.61, 6.34, 4.60, 5.47)),
        ("v1", "alpaca", 805, (4.10, 7.58, 5.47, 16.27)),
    ],
)
def test_percentages_of_probdiff_are_counts(reference, version, benchmark, total, printed):
    inputs, outputs = reference("probdiff.mtbench.counts")
    counts = inputs[f"{version}_{benchmark}_counts_of_{total}"]
    for (model, count), percent in zip(counts.items(), printed, strict=True):
        exact = outputs[f"{version}_{benchmark}"][model]
        assert 100 * count / total == pytest.approx(exact, abs=1e-9)
        assert percent_half_up(count, total, 2) == percent


def test_exact_matches_of_the_consistency_study_are_counts(reference):
    inputs, outputs = reference("probdiff.prelim.em")
    for name, count in inputs["counts"].items():
        assert percent_half_up(count, inputs["n"], 2) == outputs["percent"][name]


@pytest.mark.parametrize(("mt_bench", "vicuna_bench", "average"), SELF_EVAL)
def test_average_of_self_eval_is_that_of_the_two_pearson_columns(mt_bench, vicuna_bench, average):
    # Sums of four decimals are exact only as decimals.
    assert round_half_up(round(mt_bench + vicuna_bench, 4) / 2, 4) == average


@pytest.mark.parametrize("case", SENT_PROB)
def test_self_eval_prints_negative_correlations_without_their_sign(reference, case):
    _, outputs = reference("selfeval.data.correlations")
    recomputed = outputs[case]
    assert all(value < 0.0 for value in recomputed)
    assert [-value for value in recomputed] == pytest.approx(SENT_PROB[case], abs=1e-9)


def test_win_rates_of_alpaca_eval_from_arrays(reference):
    inputs, outputs = reference("alpaca.winrate")
    found = head_to_head(np.array(inputs["preferences"], dtype=float))
    for name in ("win_rate", "standard_error", "discrete_win_rate"):
        assert getattr(found, name) == pytest.approx(outputs[name], abs=1e-9)


def test_votes_of_the_peer_evaluation():
    n_models, n_inputs = len(peers.PRINTED), 79
    n_battles = n_models * (n_models - 1) // 2 * (n_models - 2) * n_inputs
    wins = sum(wins for _, wins in peers.PRINTED.values())
    assert n_battles == 36 * 7 * 79 == 19908
    assert n_battles - wins == 7


def test_elo_and_wins_of_the_peer_evaluation_are_one_ranking():
    elo, wins = np.array(list(peers.PRINTED.values())).T
    found = ranking_agreement(elo, wins, Resampling(200, np.random.default_rng(0)))
    assert (found.tau_b, found.spearman) == (1.0, 1.0)
