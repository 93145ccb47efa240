import math
from typing import Any

import numpy as np
import pytest

from orchestrator.records import Scored
from orchestrator.statistics.confidence import confidence


def scored(logprobs):
    """Float64 log-probabilities, so that 1e-9 can be asked for."""
    values: Any = np.asarray(logprobs, np.float64)
    return Scored(np.arange(values.size, dtype=np.int32), values)


def test_gap_of_mean_log_probabilities(reference):
    inputs, outputs = reference("probdiff.d.1")
    first, last = scored(inputs["token_logprobs_x"]), scored(inputs["token_logprobs_xK"])
    assert first.mean_logprob == pytest.approx(outputs["avg_logp_x"], abs=1e-9)
    assert last.mean_logprob == pytest.approx(outputs["avg_logp_xK"], abs=1e-9)
    assert last.mean_logprob - first.mean_logprob == pytest.approx(outputs["d"], abs=1e-9)


def test_neither_sums_nor_probabilities_give_this_gap(reference):
    inputs, outputs = reference("probdiff.d.1")
    x, last = (np.array(inputs[f"token_logprobs_{name}"]) for name in ("x", "xK"))
    sums = last.sum() - x.sum()
    literal = np.exp(last).mean() - np.exp(x).mean()
    assert sums == pytest.approx(outputs["d_if_unnormalised_sums"], abs=1e-9)
    assert literal == pytest.approx(outputs["d_if_eq1_taken_literally"], abs=1e-9)
    gap = scored(last).mean_logprob - scored(x).mean_logprob
    assert not math.isclose(gap, sums, abs_tol=1e-3)
    assert not math.isclose(gap, literal, abs_tol=1e-3)


def test_passing_a_threshold_takes_no_tolerance(reference):
    inputs, outputs = reference("probdiff.d.1")
    first, last = (scored(inputs[f"token_logprobs_{name}"]) for name in ("x", "xK"))
    gap = last.mean_logprob - first.mean_logprob
    found = confidence(np.array([gap]), np.array([0]), [-0.05, 0.0, -0.02])
    passed = [one.published.value for one in found]
    # -0.05 exactly in decimals; what float64 makes of it decides, as in the released code.
    assert passed == [outputs[f"phi_delta_{delta}"] for delta in ("-0.05", "0", "-0.02")]
    assert -gap == pytest.approx(outputs["d_v1_intro_sign"], abs=1e-9)


@pytest.mark.models
def test_teacher_forcing_reads_the_place_before_each_token(reference):
    import torch  # noqa: PLC0415 (only where it is installed)

    from launch.embedded.jobs import Forced  # noqa: PLC0415

    inputs, outputs = reference("probdiff.teacher_forcing.1")
    logits = torch.tensor(inputs["logits_LxV"], dtype=torch.float64)
    ids = inputs["token_ids"]
    for begin, mean in (
        (inputs["prompt_len"], outputs["mean"]),
        (outputs["count_nonzero_prompt_len_bug"], outputs["mean_if_prompt_len_from_count_nonzero"]),
    ):
        forced = Forced(list(range(begin - 1, len(ids) - 1)), ids[begin:])
        forced.read(0, logits[forced.places])
        assert scored(forced.logprobs).mean_logprob == pytest.approx(mean, abs=1e-9)
        if begin == inputs["prompt_len"]:
            assert forced.logprobs == pytest.approx(outputs["token_logprobs"], abs=1e-9)
