"""Chat bodies in vLLM's form, made by hand."""

import json


def entry(token, logprob, top=(), **more):
    return {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode()),
        "top_logprobs": [entry(*one) for one in top],
        **more,
    }


def chat(text, entries, finish_reason="stop", token_ids=None, **message):
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": text, **message},
        "logprobs": None if entries is None else {"content": entries},
        "token_ids": token_ids,
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return json.dumps({"choices": [choice], "usage": usage}).encode()
