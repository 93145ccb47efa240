"""Replies of the servers, and requests of the clients: the same for all.

The chat replies are those recorded from a real vLLM (`../shared/data/vllm_replies`). In that of the
judge two of the 20 alternatives are renamed to A and B, so that a verdict can be read from it.
"""

import json
import random
from pathlib import Path

from benchmarks._page import ROOT

RECORDED = ROOT.parent / "shared" / "data" / "vllm_replies"
BODIES = ("judge", "small", "large")
N_ECHOED = 64

_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
]
_WORDS_A_PART = 170


def served() -> dict[str, dict[str, bytes]]:
    """The files of each body by their paths.

    Raises:
        SystemExit: If the recorded replies are not there.
    """
    if not RECORDED.is_dir():
        raise SystemExit(f"the recorded replies are not in {RECORDED}")
    models = {"object": "list", "data": [{"id": "model", "object": "model"}]}
    common = {
        "/v1/models": json.dumps(models).encode(),
        "/v1/completions": _echo(),
        "/version": b'{"version": "fixed"}',
        "/health": b"{}",
    }
    chats = {name: (RECORDED / f"{name}.json").read_bytes() for name in BODIES}
    chats["judge"] = _with_verdicts(chats["judge"])
    return {name: {**common, "/v1/chat/completions": chat} for name, chat in chats.items()}


def write_items(path: Path, n_items: int) -> None:
    """Questions with two answers, all different; the three together are about 3 KB."""
    rng = random.Random(1)  # noqa: S311 (made-up text)
    with path.open("w", encoding="utf-8") as file:
        for index in range(n_items):
            parts = [" ".join(rng.choices(_WORDS, k=_WORDS_A_PART)) for _ in range(3)]
            item = {"id": str(index), "prompt": f"{index} {parts[0]}", "a": parts[1], "b": parts[2]}
            file.write(json.dumps(item) + "\n")


def write_prompts(path: Path, n_prompts: int) -> None:
    """Prompts of the same length for clients that judge nothing: question and answers in one."""
    rng = random.Random(1)  # noqa: S311 (made-up text)
    with path.open("w", encoding="utf-8") as file:
        for index in range(n_prompts):
            text = " ".join(rng.choices(_WORDS, k=3 * _WORDS_A_PART))
            file.write(json.dumps({"id": str(index), "prompt": f"{index} {text}"}) + "\n")


def _with_verdicts(chat: bytes) -> bytes:
    reply = json.loads(chat)
    listed = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    for at, label in ((1, "A"), (2, "B")):
        listed[at]["token"], listed[at]["bytes"] = label, list(label.encode())
    return json.dumps(reply, separators=(",", ":"), ensure_ascii=False).encode()


def _echo() -> bytes:
    """Return the reply that lm-eval's loglikelihood reads: prompt tokens with log-probabilities."""
    tokens = [f" t{i}" for i in range(N_ECHOED)]
    logprobs = {
        "tokens": tokens,
        "token_logprobs": [None, *(-1.5 for _ in tokens[1:])],
        "top_logprobs": [None, *({token: -1.5} for token in tokens[1:])],
        "text_offset": [3 * i for i in range(N_ECHOED)],
    }
    choice = {"index": 0, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": "length"}
    usage = {"prompt_tokens": N_ECHOED, "completion_tokens": 1, "total_tokens": N_ECHOED + 1}
    return json.dumps({"id": "x", "model": "model", "choices": [choice], "usage": usage}).encode()
