"""Tokens a second of the embedded server over HTTP: 64 chats of 24 tokens at a time.

`python benchmarks/embedded_server.py` starts a server with a bundled model, or with a random one
of the same size where there is none, asks over loopback, and prints tokens a second and the
processor time that server and client took for a thousand tokens (which also tells on a busy
machine). The target is 1,500 tokens a second on two idle cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import launch.embedded

BUNDLED = Path(launch.embedded.__file__).with_name("models")
Fields = dict[str, bool | int | float]
SPECIALS = ("<pad>", "<s>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}


def random_model(folder: Path, sizes: Mapping[str, Any] = SIZES) -> int:
    """Write a model of random weights with a byte-level tokenizer; the number of its weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=3,
        tie_word_embeddings=True,
        **sizes,
    )
    model = LlamaForCausalLM(config)
    n_weights = sum(weights.numel() for weights in model.parameters())
    model.to(dtype=torch.bfloat16)  # type: ignore[call-arg]  # its stubs hide it
    model.save_pretrained(folder)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        show_progress=False,
    )
    backend.train_from_iterator([Path(__file__).read_text(encoding="utf-8")] * 2, trainer)
    names = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    made: type[Any] = PreTrainedTokenizerFast
    tokenizer = made(tokenizer_object=backend, **names)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return n_weights


@contextmanager
def server(place: str, threads: int, *more: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server process and its URL."""
    command = [sys.executable, "-m", "launch.embedded.server", "--model", f"m={place}"]
    command += ["--port", "0", "--threads", str(threads), *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        if process.stderr is None:
            raise RuntimeError("the server has no stderr")
        ready = (line.split()[1] for line in process.stderr if line.startswith("ready "))
        yield next(ready), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


async def ask(session: aiohttp.ClientSession, url: str, number: int, fields: Fields) -> int:
    """One chat; the number of tokens it drew."""
    text = f"Item {number}: sort the letters of {number * 7919:x} and say which comes first."
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "seed": number, **fields}
    async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
        found = await reply.json()
    return int(found["usage"]["completion_tokens"])


async def measure(url: str, n_requests: int, n_together: int, fields: Fields) -> tuple[int, float]:
    """Tokens drawn, and seconds."""
    limit = asyncio.Semaphore(n_together)
    connector = aiohttp.TCPConnector(limit=n_together)
    tokens = 0

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal tokens
        async with limit:
            drawn = await ask(session, url, number, fields)
        tokens += drawn

    async with aiohttp.ClientSession(connector=connector) as session:
        for number in range(4):
            await ask(session, url, number, fields)
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(n_requests):
                group.create_task(one(session, 100 + number))
        return tokens, time.perf_counter() - start


def processor_seconds(process: psutil.Process) -> float:
    """Processor time a process has taken."""
    used = process.cpu_times()
    return float(used.user + used.system)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--together", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--logprobs", action="store_true", help="with 5 alternatives")
    parser.add_argument("--model", default="", help="DIR or bundled:NAME")
    options = parser.parse_args()
    fields: Fields = {
        "max_tokens": options.tokens,
        "temperature": options.temperature,
        "ignore_eos": True,
        "return_token_ids": True,
        "logprobs": True,
    }
    if options.logprobs:
        fields["top_logprobs"] = 5
    with tempfile.TemporaryDirectory() as folder:
        bundled = sorted(path.name for path in BUNDLED.glob("*") if (path / "config.json").exists())
        place = options.model or (f"bundled:{bundled[0]}" if bundled else folder)
        if place == folder:
            random_model(Path(folder))
        with server(place, options.threads) as (url, process):
            before, mine = processor_seconds(process), time.process_time()
            work = measure(url, options.requests, options.together, fields)
            tokens, seconds = asyncio.run(work)
            used = processor_seconds(process) - before
            client = time.process_time() - mine
    name = "random weights" if place == folder else place
    print(f"{name}: {tokens} tokens in {seconds:.2f} s = {tokens / seconds:.0f} tokens/s")
    print(
        f"processor seconds per 1,000 tokens: server {1000 * used / tokens:.3f}, "
        f"client {1000 * client / tokens:.3f} ({options.threads} threads)"
    )


if __name__ == "__main__":
    main()
