"""Fingerprints of the bundled methods do not change by accident: what runs hold stays valid."""

import pytest

from orchestrator import contracts, plugins
from orchestrator.units import make_part

# By kind: settings, the fingerprint without a name, and with the name `other`.
KNOWN: dict[str, tuple[dict[str, object], str, str]] = {
    "align_bench": (
        {"judges": ["j"], "prompts": "compact"},
        "50763d4f31d3d0da175a059ec8d2eba1",
        "5cc805ee5febb95eacaf775aeba7f10d",
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
        "a557703c71d528a93bd2f45773a60f29",
        "0f3d7eca6d9ff813460fff1376202e2d",
    ),
    "consistency": (
        {"similarity": {"kind": "rouge_l"}},
        "3f7b136a5895033888db492cc0ee9a10",
        "b62dc16a154289b5b19aa13def112d88",
    ),
    "critique_llm": (
        {"judges": ["j"], "prompts": "compact"},
        "74c646132e384991b20aefbdeed08c46",
        "2e273a94ae60f54a81b206ddd4a4e9ef",
    ),
    "glass_box": (
        {"scorer": "s", "calibration": True, "illustration": "other", "alternatives": 5},
        "ab31aaaf844ad22e678c0056d37fc483",
        "31eec63ffd4e000e7bbe552f96e8066f",
    ),
    "judged_rewrites": (
        {"judges": ["j"], "judge_prompt": "compact"},
        "ad923e25b0b099d64fce8e41cc71f62a",
        "7a4b5f0bbb0ad0415b0003e162d2a44a",
    ),
    "mt_bench_judge": (
        {"judges": ["j"], "mode": "pairwise", "prompts": "compact", "baseline": "a"},
        "5dec9f457f7f16c526b7bd82c1a608e8",
        "6e6084087ed9c2cfff043463cb6f43f4",
    ),
    "pairwise_ranking": (
        {"judges": ["j", "k"], "prompt": "compact", "labels": "five"},
        "56978d948f8b3e592e33887a8952cd92",
        "ab5339c50873533f118eb9d866906838",
    ),
    "pairwise_scoring": (
        {"judges": ["j"], "scale": [1, 7]},
        "f7a5d83017b818272761cc2b1d455ab6",
        "f252042de23536bd659cb3e161768c99",
    ),
    "peer_elo": (
        {"similarity": {"kind": "rouge_l"}, "elo_orders": 7},
        "0ee6c2c88a63681159de8f857c5d2251",
        "fdedb7339d52f89abedd64582ec059dc",
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
    "samples": (
        {"n": 3, "answer": {"max_tokens": 7}},
        "59223c31871ee9059b284950f8b4a56e",
        "d59a86881b47bea62c1d474ea283e0cf",
    ),
    "self_generation": (
        {"prompts": "compact"},
        "191405c0c50c335c8bf2453383041e9c",
        "d6ed6623d6f3486d9657b4ff1daf8d6c",
    ),
}


def test_every_method_is_known():
    assert sorted(KNOWN) == list(plugins.kinds(plugins.METHODS))


@pytest.mark.parametrize("kind", KNOWN)
def test_rows_that_a_run_holds_are_not_stale(kind):
    method = contracts.method(kind)
    settings, unnamed, named = KNOWN[kind]
    made = method(method.Config.model_validate(settings))
    assert make_part(kind, made, ("a", "b", "c")).fingerprint.hex() == unnamed
    assert make_part(kind, made, ("a", "b", "c"), "other").fingerprint.hex() == named
    assert make_part(kind, made, ("d",)).fingerprint.hex() == unnamed
