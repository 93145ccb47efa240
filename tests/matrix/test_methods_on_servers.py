"""Every method on every kind of server, reached by its address alone.

Each either runs to its end with good rows, or is refused before anything of the dataset is sent.
"""

import contextlib
import json
from typing import Any

import pytest

from orchestrator import plugins
from orchestrator.errors import UsageError
from orchestrator.interface import api
from tests.matrix.served import kept_server

MARK = "a harbour called Zanzarim"
MODELS = ("fake:0.3", "fake:0.9", "fake:1.0")
ANSWER = {"max_tokens": 8}
JUDGED = {"judges": ["judge"], "answer": ANSWER}
WRITTEN = {**JUDGED, "prompts": "compact", "judgment": {"max_tokens": 64}}
COT = {"chain_of_thought": True, "reasoning": {"max_tokens": 64}}

SERVERS: dict[str, tuple[object, str | None]] = {
    "native": (None, None),
    "plain": (None, "openai"),
    "vllm_v1": ({"dialect": "vllm_v1"}, None),
    "vllm_v2": ({"dialect": "vllm_v2"}, None),
    "vllm_as_openai": ({"dialect": "vllm_v2"}, "openai"),
    "sglang": ({"dialect": "sglang"}, None),
    "tgi": ({"dialect": "tgi"}, None),
    "openai": ({"dialect": "openai"}, None),
    "ollama": ({"dialect": "ollama"}, None),
    "llamacpp": ({"dialect": "llama_server"}, None),
}
"""Rules of the fake server, and the back-end that the recipe names; None for none."""

METHODS: dict[str, dict[str, Any]] = {
    "ranking_five": {"kind": "pairwise_ranking", **JUDGED},
    "ranking_three": {"kind": "pairwise_ranking", "labels": "three", **JUDGED},
    "ranking_two": {"kind": "pairwise_ranking", "labels": "two", **JUDGED},
    "ranking_compact": {"kind": "pairwise_ranking", "prompt": "compact", **JUDGED},
    "ranking_cot": {"kind": "pairwise_ranking", **COT, **JUDGED},
    "scoring": {"kind": "pairwise_scoring", **JUDGED},
    "scoring_to_ten": {"kind": "pairwise_scoring", "scale": [1, 10], **JUDGED},
    "scoring_cot": {"kind": "pairwise_scoring", **COT, **JUDGED},
    "pointwise": {"kind": "pointwise", **JUDGED},
    "pointwise_to_ten": {"kind": "pointwise", "scale": [1, 10], **JUDGED},
    "pointwise_brackets": {"kind": "pointwise", "verdict": "[[SCORE]]", **JUDGED},
    "pointwise_cot": {"kind": "pointwise", **COT, **JUDGED},
    "rubric": {"kind": "rubric", "criteria": [{"name": "accuracy"}], **JUDGED},
    "rubric_together": {
        "kind": "rubric", "criteria": [{"name": "accuracy"}, {"name": "tone"}], "together": True,
        **JUDGED,
    },
    "reward": {"kind": "reward", **JUDGED},
    "reward_pairs": {"kind": "reward_pairs", **JUDGED},
    "judged_rewrites": {"kind": "judged_rewrites", "judge_prompt": "compact", **JUDGED},
    "alpaca_eval": {"kind": "alpaca_eval", "baseline": "a", "prompts": "compact", **JUDGED},
    "mt_bench": {"kind": "mt_bench_judge", **WRITTEN},
    "mt_bench_distribution": {"kind": "mt_bench_judge", "distribution": True, **WRITTEN},
    "align_bench": {"kind": "align_bench", **WRITTEN},
    "auto_j": {"kind": "auto_j", **WRITTEN},
    "critique_llm": {"kind": "critique_llm", **WRITTEN},
    "self_generation": {"kind": "self_generation", "prompts": "compact", "answer": ANSWER},
    "answers": {"kind": "answers", "answer": ANSWER, "top_logprobs": 5},
    "confidence": {
        "kind": "confidence",
        "answer": ANSWER,
        "alternatives": 5,
        "p_true": None,
        "samples": {"n": 2, "meaning": "text"},
    },
    "probdiff": {"kind": "probdiff", "answer": ANSWER},
    "glass_box": {"kind": "glass_box", "answer": ANSWER},
    "glass_box_draws": {
        "kind": "glass_box", "observe": "draw", "combo": [],
        "answer": {"temperature": 0.7, **ANSWER},
    },
    "samples": {"kind": "samples", "answer": ANSWER},
    "peer_elo": {
        "kind": "peer_elo", "similarity": {"kind": "rouge_l"}, "answer": ANSWER,
        "candidates": ["a", "b", "judge"],
    },
    "consistency": {"kind": "consistency", "similarity": {"kind": "rouge_l"}, "answer": ANSWER},
}  # fmt: skip
FRAMES_OF_TEXTS = {"verdicts"}
"""Frames in which a made-up judge may write no verdict, which is a failed row and right."""
PLAIN = ("plain", "vllm_as_openai", "openai", "ollama")
"""Servers of which only the alternatives of one token are known."""
LONG_LABELS = (
    "ranking_five", "ranking_three", "ranking_compact", "pointwise_to_ten", "pointwise_brackets",
    "judged_rewrites", "alpaca_eval",
)  # fmt: skip
BEHIND = (
    "ranking_cot", "scoring", "scoring_to_ten", "scoring_cot", "pointwise_cot",
    "mt_bench_distribution", "rubric_together",
)  # fmt: skip
REFUSED = {
    *((on, name) for on in PLAIN for name in (*LONG_LABELS, *BEHIND, "probdiff", "glass_box")),
    # Features of the hidden states.
    *((on, "glass_box") for on in SERVERS if on != "native"),
    # Servers of models that draw texts do not rate them.
    *((on, name) for on in SERVERS if on != "native" for name in ("reward", "reward_pairs")),
    # A label that begins with another one.
    ("tgi", "pointwise_to_ten"), ("tgi", "scoring_to_ten"),
    # Log-probabilities that come with a draw, at temperature 1 and at 0.7.
    ("tgi", "samples"), *((on, "glass_box_draws") for on in (*PLAIN, "sglang", "tgi")),
}  # fmt: skip
DIAGONAL = [
    ("native", "ranking_five"), ("plain", "ranking_five"), ("plain", "pointwise"),
    ("vllm_v1", "scoring_to_ten"), ("vllm_v2", "ranking_cot"), ("vllm_as_openai", "scoring"),
    ("sglang", "alpaca_eval"), ("tgi", "ranking_three"), ("tgi", "samples"),
    ("openai", "ranking_five"), ("openai", "ranking_two"), ("openai", "scoring"),
    ("ollama", "probdiff"), ("llamacpp", "pointwise_brackets"),
]  # fmt: skip


def together(on):
    """Methods that a server is to run, dealt so that those of one run ask for unlike things.

    What a server can do is found out anew for each run, which is most of its cost.
    """
    able = [name for name in METHODS if (on, name) not in REFUSED]
    n_runs = -(-len(able) // 6)
    return [able[first::n_runs] for first in range(n_runs)]


TOGETHER = [
    pytest.param(on, names, id=f"{on}-{names[0]}") for on in SERVERS for names in together(on)
]


@contextlib.contextmanager
def a_server(name):
    rules, backend = SERVERS[name]
    with kept_server(rules, MODELS) as kept:
        yield kept, backend


def recipe(tmp_path, url, backend, names):
    models = {
        name: {"base_url": url, "model": model, **({"backend": backend} if backend else {})}
        for name, model in zip(("a", "b", "judge"), MODELS, strict=True)
    }
    item = {"key": "one", "prompt": f"Tell me of {MARK}.", "reference": "It lies by the sea."}
    (tmp_path / "items.jsonl").write_text(json.dumps(item) + "\n", encoding="utf-8")
    made = {
        "name": "matrix", "models": models,
        "methods": [{**METHODS[name], "name": name} for name in names],
        "dataset": {"path": "items.jsonl"}, "statistics": {"n_resamples": 50},
        "limits": {"max_attempts": 2},
    }  # fmt: skip
    path = tmp_path / "r.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def ran(tmp_path, kept, backend, *names):
    """True where all ran to their end with good rows, False where they were refused in time."""
    kept.bodies.clear()
    result = refused = None
    try:
        result = api.run(recipe(tmp_path, kept.url, backend, names), run_dir=tmp_path / "run")
    except UsageError as error:
        refused = error
    if result is None:
        assert kept.of(MARK) == [], refused
        return False
    assert result.n_left == 0
    for name in result.frames:
        frame = result.frames[name]
        if "status" in frame.columns and name not in FRAMES_OF_TEXTS:
            bad = frame.filter(frame["status"] != "ok").select("cause", "message").rows()
            assert not bad, (name, bad[:2])
        elif "status" in frame.columns:
            assert set(frame["cause"].drop_nulls()) <= {"no_verdict"}
    return True


@pytest.mark.parametrize(("on", "name"), DIAGONAL)
def test_a_method_runs_on_a_server_or_is_refused_before_anything_is_sent(on, name, tmp_path):
    with a_server(on) as (kept, backend):
        assert ran(tmp_path, kept, backend, name) == ((on, name) not in REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize(("on", "name"), sorted(REFUSED))
def test_a_method_is_refused_before_anything_is_sent(on, name, tmp_path):
    with a_server(on) as (kept, backend):
        assert not ran(tmp_path, kept, backend, name)


@pytest.mark.slow
@pytest.mark.parametrize(("on", "names"), TOGETHER)
def test_all_other_methods_run_on_every_server(on, names, tmp_path):
    with a_server(on) as (kept, backend):
        assert ran(tmp_path, kept, backend, *names)


def test_the_matrix_has_every_method():
    kinds = {method["kind"] for method in METHODS.values()}
    assert kinds == set(plugins.kinds(plugins.METHODS))
