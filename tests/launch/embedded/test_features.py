"""Features of a scoring pass equal those of a direct float32 pass, whatever is cached or beside."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from launch.embedded import routes
from launch.embedded.engine import Engine, Settings
from launch.embedded.features import OBSERVERS, Wanted, Watcher
from launch.embedded.protocol import ApiError, Prefix, ScoreRequest, reply
from launch.embedded.runner import Runner
from launch.embedded.served import Served, load
from orchestrator.errors import LaunchError
from orchestrator.records import FEATURES
from tests.launch.embedded.client import USER, Client, Work, begun, run
from tests.launch.embedded.test_architectures import KINDS, model
from tests.launch.embedded.test_numbers import text_job
from training.export import NAMES

ALL = sorted(FEATURES)
IDS = [70, 81, 62, 9, 3, 14]
LONG = [{"role": "user", "content": "the judge reads two answers " * 12}]


def direct(served: Served, ids: list[int], n_prompt: int) -> dict[str, Any]:
    """Every feature by one eager pass of `transformers` that returns all its attentions."""
    causal = served.runner.model
    causal.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            out = causal(input_ids=torch.tensor([ids]), use_cache=False, output_attentions=True)
    finally:
        causal.set_attn_implementation("sdpa")
    logits = out.logits[0].double()
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    var = logprobs.var(-1)
    product = (logprobs * logits).mean(-1)
    aligned, later = slice(n_prompt - 1, -1), slice(n_prompt, None)
    following = [*ids[n_prompt + 1 :], ids[0]]
    paid = [layer[0, :, n_prompt:, :n_prompt].double() for layer in out.attentions]
    return {
        "entropy": entropy[aligned].tolist(),
        "vocab_logprob_var": var[aligned].tolist(),
        "vocab_mean_logp_logit": product[aligned].tolist(),
        "compat_logprob": [
            float(row[t]) for row, t in zip(logprobs[later], following, strict=True)
        ],
        "compat_vocab_logprob_var": var[later].tolist(),
        "compat_vocab_mean_logp_logit": product[later].tolist(),
        "attention_entropy": [(-torch.xlogy(a, a).sum((1, 2)) / n_prompt).tolist() for a in paid],
    }


def score(served: Served, **fields: Any) -> Work:
    return begun(routes.score, ScoreRequest(**{"messages": USER, **fields}), served)


def check(served: Served, scoring: Work) -> None:
    said = scoring.reply()
    prompt = list(scoring.job.ids[: scoring.job.n_prompt])
    expected = direct(served, [*prompt, *said["token_ids"]], len(prompt))
    for name, values in said["features"].items():
        found, wanted = torch.tensor(values), torch.tensor(expected[name])
        assert found.shape == wanted.shape, name
        # A mean of products of numbers around 20 is in the hundreds.
        rtol = 1e-5 if name.endswith("logit") else 0
        assert torch.allclose(found, wanted, rtol=rtol, atol=1e-4), name


def test_features_equal_a_direct_pass(served: Served) -> None:
    scoring = score(served, token_ids=IDS, features=ALL)
    run(served.engine, scoring.job)
    assert list(scoring.reply()["features"]) == ALL
    check(served, scoring)


@pytest.mark.parametrize("name", ALL)
def test_each_feature_is_the_same_alone(served: Served, name: str) -> None:
    scoring = score(served, token_ids=IDS, features=[name])
    run(served.engine, scoring.job)
    assert list(scoring.reply()["features"]) == [name]
    check(served, scoring)


@pytest.mark.parametrize("name", ALL)
def test_features_leave_the_rest_of_a_score_as_it_is(served: Served, name: str) -> None:
    bare = score(served, token_ids=IDS, top_logprobs=3)
    full = score(served, token_ids=IDS, top_logprobs=3, features=[name])
    run(served.engine, bare.job, full.job)
    plain, observed = bare.reply(), full.reply()
    assert observed["logprobs"] == pytest.approx(plain["logprobs"], abs=1e-4)
    assert observed["top_token_ids"] == plain["top_token_ids"]
    assert len(observed["top_logprobs"]) == len(IDS)
    assert observed.keys() - plain.keys() == {"features"}
    assert observed["usage"]["total_tokens"] == plain["usage"]["total_tokens"]


def test_features_after_a_known_head_equal_a_direct_pass(served: Served) -> None:
    first = score(served, messages=LONG, token_ids=IDS, features=ALL)
    run(served.engine, first.job)
    second = score(served, messages=LONG, token_ids=IDS, features=ALL)
    run(served.engine, second.job)
    assert second.job.n_cached >= 32
    check(served, second)


def test_features_in_company_equal_a_direct_pass(served: Served) -> None:
    scorings = [
        score(
            served,
            messages=[{"role": "user", "content": "word " * (3 * n)}],
            token_ids=[5 + n, *IDS[: n % 6], 60 + n],
            features=ALL if n % 3 else ALL[1:],
        )
        for n in range(1, 12)
    ]
    others = [text_job(served, 5 + 14 * i, 10 + 3 * i, temperature=1, key=i) for i in range(8)]
    plain = score(served, token_ids=IDS)
    run(served.engine, *(one.job for one in scorings), *others, plain.job)
    for scoring in scorings:
        check(served, scoring)
    alone = score(served, token_ids=IDS)
    run(served.engine, alone.job)
    assert plain.reply()["logprobs"] == pytest.approx(alone.reply()["logprobs"], abs=1e-4)


def test_features_of_long_answers_computed_in_pieces_equal_a_direct_pass(
    bos: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watcher, "tokens", lambda _self, _n_keys: 7)
    engine = Engine(bos.runner, bos.tokens, Settings(max_len=512, prefill_tokens=32))
    engine.start()
    rng = random.Random(0)
    ids = [rng.randrange(4, 320) for _ in range(100)]
    scoring = score(bos, messages=LONG, token_ids=ids, features=ALL)
    run(engine, scoring.job)
    engine.close()
    check(bos, scoring)


def test_attention_is_paid_to_a_begun_answer_too(served: Served) -> None:
    scoring = score(served, token_ids=IDS, prefix=Prefix(text="I think"), features=ALL)
    run(served.engine, scoring.job)
    check(served, scoring)


def test_the_end_of_the_turn_is_scored_last(served: Served) -> None:
    scoring = score(served, token_ids=IDS, end_of_turn=True, features=ALL)
    run(served.engine, scoring.job)
    assert scoring.reply()["token_ids"] == [*IDS, served.tokens.end_of_turn]
    check(served, scoring)


def test_no_tokens_have_no_features(served: Served) -> None:
    scoring = score(served, token_ids=[], features=ALL)
    run(served.engine, scoring.job)
    found = scoring.reply()
    assert found["logprobs"] == []
    assert found["features"] == {name: [] for name in ALL}


def test_a_token_that_can_not_come_adds_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[0.0, 0.0, float("-inf")]])
    assert OBSERVERS["entropy"](logits, logits.log_softmax(-1)).tolist() == pytest.approx(
        [0.6931472], abs=1e-6
    )


def test_numbers_that_are_not_finite_become_null() -> None:
    wanted = Wanted.of(["vocab_logprob_var"], 3)
    features = wanted.reply([-1.0], {"vocab_logprob_var": [float("inf")]}, 1)
    assert reply(features).body == b'{"vocab_logprob_var":[null]}'


def test_an_unknown_feature_is_refused(client: Client) -> None:
    fields = {"messages": USER, "token_ids": IDS}
    body = client.post("/v1/score", 400, **fields, features=["mood", "entropy"])
    assert body["error"]["message"] == "there is no feature mood"
    assert body["error"]["param"] == "features"


def test_features_come_over_the_wire(client: Client, bos: Served) -> None:
    body = client.post("/v1/score", messages=USER, token_ids=IDS, features=ALL)
    scoring = score(bos, token_ids=IDS, features=ALL)
    run(bos.engine, scoring.job)
    for name, values in scoring.reply()["features"].items():
        assert torch.allclose(torch.tensor(body["features"][name]), torch.tensor(values), atol=1e-4)


def test_attention_of_a_long_sequence_is_refused_with_its_memory(bos: Served) -> None:
    limits = Settings(max_len=512, attention_tokens=64)
    small = Served("small", "x", bos.tokens, bos.runner, Engine(bos.runner, bos.tokens, limits))
    with pytest.raises(ApiError, match=r"of \d+ tokens would take about \d+ MiB") as refused:
        score(small, messages=LONG, token_ids=IDS, features=["attention_entropy"])
    assert refused.value.status == 400
    assert "at most 64 tokens" in refused.value.message
    score(small, messages=LONG, token_ids=IDS, features=["entropy"])


def test_attention_is_fast_again_after_it_was_watched(served: Served) -> None:
    modules = served.runner.watcher._modules
    before = [len(module._forward_hooks) for module in modules]
    scoring = score(served, token_ids=IDS, features=["attention_entropy"])
    run(served.engine, scoring.job)
    assert served.runner.model.config._attn_implementation == "sdpa"
    assert [len(module._forward_hooks) for module in modules] == before


@pytest.mark.parametrize(("kind", "fields"), KINDS, ids=[kind for kind, _ in KINDS])
def test_attention_of_other_architectures_can_be_watched(kind: str, fields: dict[str, Any]) -> None:
    assert not Runner(model(kind, **fields)).unwatchable


def test_a_model_that_shows_no_attention_is_named(bos: Served) -> None:
    watcher = Watcher(bos.runner.model, [0, 1, 2])
    text = "LlamaForCausalLM shows the attention of 0 of 3 layers"
    with pytest.raises(LaunchError, match=text), watcher.watch(lambda *_: None):
        pass


def test_attention_is_refused_where_it_can_not_be_watched(
    bos: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bos.runner, "unwatchable", "it hides them")
    with pytest.raises(ApiError, match="not available for this model: it hides them"):
        score(bos, token_ids=IDS, features=["attention_entropy"])


@pytest.mark.models
def test_features_of_bundled_models_equal_direct_passes() -> None:
    for name in NAMES:
        served = load(name, f"bundled:{name}", Settings())
        scoring = score(served, text="The second one: [[<]]", features=ALL, end_of_turn=True)
        served.engine.start()
        run(served.engine, scoring.job)
        served.engine.close()
        check(served, scoring)
