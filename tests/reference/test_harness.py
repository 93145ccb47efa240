import math

import numpy as np
import pytest

from orchestrator.judgment.verdicts import Winner
from orchestrator.methods import _harness
from orchestrator.methods.mt_bench_judge import RATING, WINNER
from orchestrator.statistics.length import head_to_head
from tests.oracles.alpaca_eval import preference


def nan_is_none(values):
    return [None if value == "NaN" else value for value in values]


def test_ratings_as_fastchat_reads_them(reference):
    inputs, outputs = reference("mtbench.parse_rating")
    read = [RATING.by(text, "fastchat")[0] for text in inputs["texts"]]
    assert read == outputs["ratings"]


def test_ratings_that_fastchat_misreads_or_calls_minus_one_are_missing(reference):
    inputs, outputs = reference("mtbench.parse_rating")
    read = [RATING.read(text).value for text in inputs["texts"]]
    misread = {"First [[3]] then final [[9]]", "see [1] for details. Rating: 7"}
    assert misread < set(inputs["texts"])
    expected = zip(inputs["texts"], outputs["ratings"], strict=True)
    assert read == [None if r == -1 or text in misread else r for text, r in expected]


def test_winners_as_fastchat_reads_them(reference):
    inputs, outputs = reference("mtbench.parse_winner")
    read = [WINNER.by(text, "fastchat")[0] or "error" for text in inputs["texts"]]
    assert read == outputs["winner"]


def test_a_verdict_that_fastchat_misreads_or_calls_an_error_is_missing(reference):
    inputs, outputs = reference("mtbench.parse_winner")
    read = [WINNER.read(text).value for text in inputs["texts"]]
    denied = "Not [[A]] but [[B]]"
    assert denied in inputs["texts"]
    expected = zip(inputs["texts"], outputs["winner"], strict=True)
    assert read == [None if w == "error" or text == denied else w for text, w in expected]


def test_preferences_from_alternatives(reference):
    inputs, outputs = reference("alpaca.logprob_parser")
    read = [
        preference(top.get("m", np.nan), top.get("M", np.nan)) for top in inputs["top_logprobs"]
    ]
    for ours, theirs in zip(read, nan_is_none(outputs["preference_1to2"]), strict=True):
        assert ours == (None if theirs is None else pytest.approx(theirs, abs=1e-9))
    for ours, theirs in zip(read, nan_is_none(outputs["P_output2_better"]), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours - 1.0 == pytest.approx(theirs, abs=1e-9)


def test_win_rates_of_alpaca_eval(reference):
    inputs, outputs = reference("alpaca.winrate")
    given = [np.nan if value is None else value for value in nan_is_none(inputs["preferences"])]
    found = head_to_head(np.array(given))
    assert found.n == outputs["n_total"] == len(given) - 1
    for name in ("win_rate", "standard_error", "discrete_win_rate"):
        assert getattr(found, name) == pytest.approx(outputs[name], abs=1e-9)


def test_overall_of_align_bench_is_a_macro_average(reference, align_bench_overall):
    inputs, outputs = reference("alignbench.overall")
    means, counts = inputs["category_means"], inputs["counts"]
    found = align_bench_overall(means)
    for name in ("reasoning", "language", "overall"):
        assert found[name] == pytest.approx(outputs[name], abs=1e-9)
    micro = math.fsum(means[name] * n for name, n in counts.items()) / sum(counts.values())
    assert micro == pytest.approx(outputs["micro_average_for_comparison"], abs=1e-9)
    assert abs(found["overall"] - micro) > 0.1


def test_agreement_and_consistency_over_swapped_pairs(reference):
    inputs, outputs = reference("critique.pairwise")
    winners: list[Winner] = ["A", "B", "tie"]
    pairs = [
        (winners[one], _harness.swapped(winners[two]), winners[label])
        for one, two, label in inputs["(pred order1, pred order2, label)"]
    ]
    same = [one == two for one, two, _ in pairs]
    right = [one == two == label for one, two, label in pairs]
    assert np.mean(right) == pytest.approx(outputs["agreement"], abs=1e-9)
    assert np.mean(same) == pytest.approx(outputs["consistency"], abs=1e-9)
