import pytest

from orchestrator.wire.metrics import QueueLengths, queue_lengths

VLLM = b"""# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 2.0
vllm:num_requests_running{engine="0",model_name="b"} 9.0
vllm:num_requests_waiting{engine="0",model_name="a"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a",reason="x"} 5.0
"""


def test_engines_of_a_model_are_added_up():
    assert queue_lengths(VLLM, "a") == QueueLengths(5, 7)


def test_a_figure_that_is_missing_is_unknown():
    assert queue_lengths(VLLM, "b") == QueueLengths(9, None)


def test_our_own_prefix_is_known():
    text = b'orchestrator:num_requests_running{model_name="m \\"q\\""} 1\n'
    assert queue_lengths(text, 'm "q"') == QueueLengths(1, None)


def test_figures_without_a_model_are_the_servers():
    assert queue_lengths(b"vllm:num_requests_waiting 4\n", "m") == QueueLengths(None, 4)


@pytest.mark.parametrize("text", [b"", b"\xff", b'vllm:num_requests_running{model_name="m"} e\n'])
def test_nothing_published_is_none(text):
    assert queue_lengths(text, "m") is None
