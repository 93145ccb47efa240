"""Fingerprints of the bundled methods do not change by accident: what runs hold stays valid."""

import pytest
from pydantic import ValidationError

from orchestrator import contracts, plugins
from orchestrator.contracts.method import Method
from orchestrator.units import make_part

# By kind: settings, the fingerprint without a name, and with the name `other`.
KNOWN: dict[str, tuple[dict[str, object], str, str]] = {
    "align_bench": (
        {"judges": ["j"], "prompts": "compact"},
        "b1c3d666d5d06f6de713e8f11e7da896",
        "57f4a77752af023ab87a9bba21c1a4a4",
    ),
    "alpaca_eval": (
        {"judges": ["j"], "baseline": "a", "prompts": "compact"},
        "be934fcc28473bbe7a9ea954e44de277",
        "e7b3eb9ac81ea88dd904f9676611f226",
    ),
    "answers": (
        {"top_logprobs": 3},
        "20a6cc3db17852ee572969e75e554194",
        "8d426c00816efe7b926773e1635fab78",
    ),
    "auto_j": (
        {"judges": ["j"], "mode": "pairwise", "prompts": "compact"},
        "b2f1af8f72b15a4bb086162aa18572df",
        "d5687139d3246abeeed608644be2cee3",
    ),
    "confidence": (
        {"vocabulary_size": 9, "samples": {"n": 3}},
        "3bd927ab4e70ec029cc38b3908a3db14",
        "2ae93a313306324b0dc485bb8e19cc51",
    ),
    "consistency": (
        {"similarity": {"kind": "rouge_l"}},
        "3f7b136a5895033888db492cc0ee9a10",
        "b62dc16a154289b5b19aa13def112d88",
    ),
    "critique_llm": (
        {"judges": ["j"], "prompts": "compact"},
        "2e04141fc0cae7140a0f72f036bc83f3",
        "46fb33746f5d1669f5abef3c4bfde275",
    ),
    "glass_box": (
        {"scorer": "s", "calibration": True, "illustration": "own", "alternatives": 5},
        "3338400a0b75b3112b9537f51ae682dc",
        "8dbb7d7a7e4d76e1e12f362695dc276b",
    ),
    "judged_rewrites": (
        {"judges": ["j"], "judge_prompt": "compact"},
        "ad923e25b0b099d64fce8e41cc71f62a",
        "7a4b5f0bbb0ad0415b0003e162d2a44a",
    ),
    "mt_bench_judge": (
        {"judges": ["j"], "mode": "pairwise", "prompts": "compact", "baseline": "a"},
        "642835386ac73fa501671d4ac5c369e1",
        "47d3e60214026545642547b2f19fc229",
    ),
    "pairwise_ranking": (
        {"judges": ["j", "k"], "prompt": "compact", "labels": "five"},
        "adefc9a58eec7daa87fbe840cf7a9ca7",
        "558de0d1084832c8cc343a055e8bd778",
    ),
    "pairwise_scoring": (
        {"judges": ["j"], "scale": [1, 7]},
        "f7a5d83017b818272761cc2b1d455ab6",
        "f252042de23536bd659cb3e161768c99",
    ),
    "peer_elo": (
        {"similarity": {"kind": "rouge_l"}, "elo_orders": 7},
        "9088f299edef18851c126f7d61ff3ad7",
        "8cc6d3ba6dad8b0b3786eaa45c46482a",
    ),
    "pointwise": (
        {"judges": ["j"], "prompt": "compact", "chain_of_thought": True},
        "a64d2bea925fa09bed43d0b205de51fb",
        "66fc67f6edb3ef9a221bedf8ceceb28f",
    ),
    "probdiff": (
        {"preset": "submission", "rounds": 2},
        "187c4881140017ff4d61a99001f6139f",
        "34cc5f3cf15422652016900764101d5f",
    ),
    "reward": (
        {"judges": ["j"], "places": "min"},
        "e0a89a706967b935a20bb0fee7fd379b",
        "8b313f078b759ece2135c14f83070fca",
    ),
    "reward_pairs": (
        {"judges": ["j"], "output": 1, "temperature": 2.0},
        "49b2f3ecda93cc09881fa319b2554150",
        "a68bd5d6098c5ada9e90398346777c65",
    ),
    "rubric": (
        {"judges": ["j"], "criteria": [{"name": "accuracy", "scale": "A-T"}], "checklist": {}},
        "5d1c842ea618b73ab26052a239c8d360",
        "4955d06a532e310a1a97f4af8e4e7fa6",
    ),
    "samples": (
        {"n": 3, "answer": {"max_tokens": 7}},
        "59223c31871ee9059b284950f8b4a56e",
        "d59a86881b47bea62c1d474ea283e0cf",
    ),
    "self_generation": (
        {"prompts": "compact"},
        "62ad734d7c68e6cba2e9a25b2c39768f",
        "3394c6630fd1cf68b2506b69432c188c",
    ),
}


def test_every_method_is_known():
    assert sorted(KNOWN) == list(plugins.kinds(plugins.METHODS))


@pytest.mark.parametrize("kind", KNOWN)
def test_rows_that_a_run_holds_are_not_stale(kind):
    method = contracts.load(Method, kind)
    settings, unnamed, named = KNOWN[kind]
    made = method(method.Config.model_validate(settings))
    assert make_part(kind, made, ("a", "b", "c")).fingerprint.hex() == unnamed
    assert make_part(kind, made, ("a", "b", "c"), "other").fingerprint.hex() == named
    assert make_part(kind, made, ("d",)).fingerprint.hex() == unnamed


@pytest.mark.parametrize("kind", KNOWN)
def test_an_empty_list_of_candidates_is_refused(kind):
    settings, _, _ = KNOWN[kind]
    with pytest.raises(ValidationError, match="candidates"):
        contracts.load(Method, kind).Config.model_validate({**settings, "candidates": []})
