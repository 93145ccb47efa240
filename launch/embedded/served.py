"""A model that is served: weights, tokenizer, engine, and requests in flight."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from starlette.requests import Request

from launch import _weights
from launch.embedded import layout
from launch.embedded.engine import Engine, Settings, capacities
from launch.embedded.jobs import Job
from launch.embedded.layout import longest_sequence
from launch.embedded.model import Rating, add_noise, can_pack, leave_out_layers, pack, rates
from launch.embedded.protocol import Rendered, bad_request
from launch.embedded.runner import Runner
from launch.embedded.tokens import Tokens
from orchestrator import __version__
from orchestrator.errors import LaunchError

_log = logging.getLogger(__name__)
_LEAST_LEN = 16
_OPTIONS: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True, slots=True)
class Served:
    """One model under its name."""

    name: str
    root: str
    tokens: Tokens
    runner: Runner
    engine: Engine

    @property
    def rates(self) -> bool:
        """True if it is a reward model, which draws no texts."""
        return isinstance(self.runner.model, Rating)

    @property
    def fingerprint(self) -> str:
        """All that decides the numbers besides the weights."""
        dtype = str(self.runner.dtype).removeprefix("torch.")
        place = f"{self.runner.device.type}-{self.runner.kernels}"
        return f"embedded-{__version__}-torch-{torch.__version__}-{dtype}-{place}"

    @property
    def max_len(self) -> int:
        """Longest sequence in tokens."""
        return self.engine.limits.max_len

    def render(self, request: Rendered) -> str:
        """The chat template's text for a request, or the message itself for `template: none`.

        Raises:
            ApiError: 400 where the messages are missing or refused.
        """
        if not request.messages:
            raise bad_request("messages must hold at least one message", "messages")
        messages = [_message(message) for message in request.messages]
        if request.template is not None:
            # A base model's prompt is the text itself.
            if request.template != "none":
                raise bad_request("template must be 'none', or left out", "template")
            if len(messages) != 1:
                raise bad_request(
                    "template 'none' takes one message: there are no turns", "messages"
                )
            return str(messages[0]["content"])
        going_on = bool(request.continue_final_message)
        if going_on and request.add_generation_prompt:
            text = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            raise bad_request(text, "continue_final_message")
        opening = request.add_generation_prompt
        options = {
            **(request.chat_template_kwargs or {}),
            "add_generation_prompt": not going_on if opening is None else opening,
            "continue_final_message": going_on,
        }
        return self.tokens.render(messages, options)

    def encode(self, request: Rendered, text: str | None = None) -> list[int]:
        """Tokens of a rendered request; `text` where it is rendered already.

        What the tokenizer puts around a text (such as BOS) is the chat template's to write, and
        the tokenizer's where there is no template.

        Raises:
            ApiError: 400 where the messages are missing or refused.
        """
        special = request.add_special_tokens
        plain = request.template is not None
        text = self.render(request) if text is None else text
        return self.tokens.encode(text, special=plain if special is None else special)

    def check_length(self, n_prompt: int, n_more: int = 1) -> None:
        """Refuse a sequence that does not fit.

        Raises:
            ApiError: 400 that names the limit.
        """
        if n_prompt < 1:
            raise bad_request("the prompt has no tokens", "prompt")
        if n_prompt + n_more > self.max_len:
            text = (
                f"This model's maximum context length is {self.max_len} tokens. However, your "
                f"prompt contains {n_prompt} input tokens, which exceeds this limit even with "
                f"{n_more} further tokens. Please reduce the length of the prompt."
            )
            raise bad_request(text, "input_tokens")

    def check_attention(self, n_tokens: int) -> None:
        """Refuse attention that can't be seen, or of a sequence that is too long.

        Raises:
            ApiError: 400 with the memory that it would take.
        """
        runner, most = self.runner, self.engine.limits.attention_tokens
        if runner.unwatchable:
            text = f"attention_entropy is not available for this model: {runner.unwatchable}"
            raise bad_request(text, "features")
        if n_tokens > most:
            kept = 3 * n_tokens * runner.layout.width * runner.like.element_size()
            mib = (kept + runner.watcher.n_bytes(n_tokens)) / 2**20
            text = (
                f"attention_entropy of {n_tokens} tokens would take about {mib:,.0f} MiB beside "
                f"the model's weights, and time that grows with the square of the length; this "
                f"server takes at most {most} tokens (--attention-tokens)"
            )
            raise bad_request(text, "features")

    async def run(self, request: Request, job: Job) -> None:
        """Queue a job and wait until it is done; a closed connection drops it.

        Raises:
            ApiError: 503 when too many wait, 500 when the engine fails.
            ClientGoneError: When the client closed the connection.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Exception | None] = loop.create_future()

        def settle(error: Exception | None) -> None:
            if not waiting.done():
                waiting.set_result(error)

        def done(error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(settle, error)
            except RuntimeError:
                _log.debug("a reply came after the server's loop had ended")

        job.on_done = done

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            self.engine.cancel(job)

        self.engine.submit(job)
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(watch())
                await asyncio.wait([waiting])
                watcher.cancel()
        except asyncio.CancelledError:
            self.engine.cancel(job)
            raise
        if (error := waiting.result()) is not None:
            raise error


def _message(message: dict[str, object]) -> dict[str, object]:
    """A message with its content as one string.

    Raises:
        ApiError: 400 for a role or content of another form.
    """
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise bad_request("each message needs a role", "messages")
    if content is None:
        content = ""
    if isinstance(content, list):
        texts: list[Any] = [part.get("text") for part in content if isinstance(part, dict)]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise bad_request("only text parts are supported in content", "messages")
        content = "\n".join(texts)
    if not isinstance(content, str):
        raise bad_request("content must be a string or a list of text parts", "messages")
    return {**message, "content": content}


def load(
    name: str, place: str, settings: Settings, before_step: Callable[[], None] = lambda: None
) -> Served:
    """Load a model and check that it can be served; its engine is not started.

    Raises:
        LaunchError: If it can't be loaded or its numbers would not be those of a plain pass.
    """
    from transformers import AutoTokenizer  # noqa: PLC0415 (takes seconds)

    folder = _weights.folder_now(place)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **_OPTIONS)
        model = _read(folder, settings)
        if can_pack(model) and not pack(model):
            model = _read(folder, settings)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise LaunchError(f"{name}: {folder} cannot be loaded: {error}") from error
    runner = Runner(model)
    stops = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    stops = [] if stops is None else [stops] if isinstance(stops, int) else list(stops)
    tokens = Tokens(tokenizer, stops)
    # All models together take a quarter of what is free.
    kv_bytes = settings.kv_bytes or layout.free_bytes(runner.device) // (4 * settings.n_models)
    longest = _context(model.config.get_text_config(), settings.max_len)
    limits = replace(settings, max_len=_fitting(name, longest, kv_bytes, runner), kv_bytes=kv_bytes)
    return Served(name, place, tokens, runner, Engine(runner, tokens, limits, before_step))


def _fitting(name: str, longest: int, kv_bytes: int, runner: Runner) -> int:
    """The longest sequence that fits into the memory for keys and values.

    Raises:
        LaunchError: If none of a useful length does.
    """
    fitting = longest_sequence(kv_bytes, runner.token_bytes, capacities(longest, runner))
    if fitting < min(longest, _LEAST_LEN):
        raise LaunchError(
            f"{name}: {kv_bytes / 2**20:,.0f} MiB for keys and values hold {fitting} tokens; free "
            f"some memory, or set --kv-cache-mb (kv_cache_mb in a recipe)"
        )
    if fitting < longest:
        text = "%s: sequences are limited to %d of %d tokens: %d MiB for keys and values hold them"
        _log.warning(text, name, fitting, longest, kv_bytes >> 20)
    return fitting


def _read(folder: Path, settings: Settings) -> Any:  # noqa: ANN401 (transformers' classes share no useful type)
    """Load a model's weights; fast attention where it has that.

    Raises:
        OSError, ValueError, KeyError, RuntimeError, ImportError: If it can't be loaded.
    """
    from transformers import (  # noqa: PLC0415 (takes seconds)
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
    )

    options = {**_OPTIONS, "dtype": getattr(torch, settings.dtype), "use_safetensors": True}
    is_rating = rates(folder)
    kind: Any = AutoModelForSequenceClassification if is_rating else AutoModelForCausalLM
    model: Any
    try:
        model = kind.from_pretrained(folder, attn_implementation="sdpa", **options)
    except ValueError as error:
        if "scaled_dot_product" not in str(error) and "sdpa" not in str(error):
            raise
        model = kind.from_pretrained(folder, attn_implementation="eager", **options)
    if is_rating:
        model = Rating(model)
    if settings.skip_layers:
        leave_out_layers(model, settings.skip_layers)
    if settings.weight_noise:
        add_noise(model, settings.weight_noise, settings.noise_seed)
    return model.to(settings.device).eval()


def _context(config: object, wanted: int) -> int:
    """Longest sequence: within the trained positions and any sliding window.

    Inside a window, sliding attention is plain attention, which is what the engine computes.
    """
    bounds = [wanted] if wanted else []
    for field in ("max_position_embeddings", "n_positions", "seq_length"):
        value = getattr(config, field, None)
        if isinstance(value, int) and value > 0:
            bounds.append(value)
            break
    kinds = getattr(config, "layer_types", None)
    slides = kinds is None or any("sliding" in kind or "chunk" in kind for kind in kinds)
    for field in ("sliding_window", "attention_chunk_size"):
        value = getattr(config, field, None)
        if slides and isinstance(value, int) and value > 0:
            bounds.append(value)
    if not bounds:
        raise LaunchError("the model does not say how long a sequence may be")
    return min(bounds)
