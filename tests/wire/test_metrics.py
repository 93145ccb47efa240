import pytest

from orchestrator.wire.replies import ServerLoad, figure, load_figures

VLLM = b"""# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 2.0
vllm:num_requests_running{engine="0",model_name="b"} 9.0
vllm:num_requests_waiting{engine="0",model_name="a"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a",reason="x"} 5.0
"""


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (b"0", 0.0),
        (b"-1", 0.0),
        (b"9007199254740992", 2.0**53),
        (b"9007199254740994", None),
        (b"inf", None),
        (b"nan", None),
        (b"-inf", 0.0),
        (b"many", None),
    ],
)
def test_a_figure_is_from_zero_to_what_a_float_counts(said, value):
    assert figure(said) == value


def test_engines_of_a_model_are_added_up():
    assert load_figures(VLLM, "a") == ServerLoad(running=5, waiting=7)


def test_a_figure_that_can_not_be_read_takes_no_other_along():
    odd = b'vllm:num_requests_running{engine="9",model_name="a"} 1e999\n'
    assert load_figures(odd + VLLM, "a") == load_figures(VLLM, "a")


def test_how_full_caches_are_and_what_they_held_is_read():
    text = b"""vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="a"} 162.0
vllm:prefix_cache_queries_total{engine="1",model_name="a"} 1.5e+02
vllm:prefix_cache_queries_created{engine="0",model_name="a"} 1.7952269767921596e+09
vllm:prefix_cache_hits_total{engine="0",model_name="a"} 32.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="a"} 5.0
"""
    figures = load_figures(text, "a")
    assert figures == ServerLoad(kv_cache=0.75, prefix_queries=312, prefix_hits=32)


def test_a_figure_that_is_missing_is_unknown():
    assert load_figures(VLLM, "b") == ServerLoad(running=9, waiting=None)


def test_our_own_prefix_is_known():
    text = b'orchestrator:num_requests_running{model_name="m \\"q\\""} 1\n'
    assert load_figures(text, 'm "q"') == ServerLoad(running=1, waiting=None)


def test_figures_without_a_model_are_the_servers():
    assert load_figures(b"vllm:num_requests_waiting 4\n", "m") == ServerLoad(
        running=None, waiting=4
    )


@pytest.mark.parametrize("text", [b"", b"\xff", b'vllm:num_requests_running{model_name="m"} e\n'])
def test_nothing_published_is_none(text):
    assert load_figures(text, "m") is None


def test_the_words_of_sglang_and_of_tgi_are_known():
    sglang = b"""sglang:num_running_reqs{model_name="a"} 2.0
sglang:num_queue_reqs{model_name="a"} 1.0
sglang:token_usage{model_name="a"} 0.5
"""
    assert load_figures(sglang, "a") == ServerLoad(running=2, waiting=1, kv_cache=0.5)
    assert load_figures(b"tgi_queue_size 3\ntgi_batch_current_size 4\n", "a") == ServerLoad(
        running=4, waiting=3
    )
