"""Reply bodies of made-up servers."""

import json

from orchestrator.probing.replies import HttpReply


def reply(table, status=200):
    return HttpReply(status, json.dumps(table).encode())


def refusal(words, status=400):
    return reply({"error": {"message": words}}, status)


def chat(*positions, text="", ids=None, n_prompt=None):
    """A chat completion; a position is the drawn token and its alternatives, {token: ln p}."""
    content = [
        {
            "token": drawn,
            "logprob": top.get(drawn),
            "bytes": list(drawn.encode()),
            "top_logprobs": [{"token": token, "logprob": value} for token, value in top.items()],
        }
        for drawn, top in positions
    ]
    choice = {"message": {"content": text}, "logprobs": {"content": content} if content else None}
    if ids is not None:
        choice["token_ids"] = ids
    usage = {} if n_prompt is None else {"usage": {"prompt_tokens": n_prompt}}
    return reply({"choices": [choice], **usage})
