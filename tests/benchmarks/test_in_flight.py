"""As many requests are open at a server as `limits.max_in_flight` allows: no hidden cap."""

import json

import pytest

from benchmarks.peers.clients import CLIENTS
from benchmarks.peers.measure import run
from benchmarks.peers.server import counting, opened

LISTED = [
    {"token": label, "logprob": logprob, "bytes": list(label.encode())}
    for label, logprob in (("A", -0.4), ("B", -1.2))
]
CHAT = {
    "choices": [
        {
            "message": {"role": "assistant", "content": "A"},
            "logprobs": {"content": [{**LISTED[0], "top_logprobs": LISTED}]},
            "finish_reason": "length",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}
FILES = {
    "/v1/models": b'{"data": [{"id": "model"}]}',
    "/v1/chat/completions": json.dumps(CHAT).encode(),
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("allowed", [512, 2000])
def test_the_server_has_all_requests_open_that_are_allowed(allowed):
    # It answers none before that many are open, or none has come for five seconds.
    with counting(FILES, "--hold", str(allowed)) as url:
        run(CLIENTS[0], url, "judge", 2 * allowed, allowed)
        assert opened(url)["peak"] == allowed
