"""The kinds of servers that the suite is run against: how each is launched and spoken to.

A kind more is an entry in `KINDS`. Its tests are chosen by its name: `pytest -k vllm`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from launch import llamacpp
from orchestrator import contracts
from orchestrator.backend import Backend, BackendKind, Endpoint
from orchestrator.serving import LaunchKind, RunningServer, ServedModel
from orchestrator.weights import PUBLISHED
from tools import make_gguf

MODEL = "judge"
CONTEXT = 1024


@dataclass(frozen=True)
class Kind:
    """A kind of server.

    Attributes:
        launch: Its launch kind; its name where empty.
        speaks: Its back-end; that of the launch kind where empty.
        settings: Of its launch kind.
        backend: Settings of the back-end.
        weights: What it serves.
        rewritten: Number format that its GGUF file is written in first, `f32` or `f16`; empty
            serves the weights as they are.
        tolerance: Largest error of a log-probability against a float32 forward pass, nats; None
            for numbers that are made up.
        max_top: Alternatives that may be asked for; None for any number.
        by_text: Whether it takes texts only, no token ids.
        any_name: Whether it answers under any model's name.
        marks: What its tests need.
    """

    name: str
    launch: str = ""
    speaks: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    backend: Mapping[str, Any] = field(default_factory=dict)
    weights: str = f"bundled:{MODEL}"
    rewritten: str = ""
    tolerance: float | None = None
    max_top: int | None = None
    by_text: bool = False
    any_name: bool = False
    marks: tuple[pytest.MarkDecorator, ...] = ()


KINDS = {
    kind.name: kind
    for kind in (
        *(
            Kind(
                f"dialect_{dialect}",
                launch="scripted",
                speaks=speaks,
                settings={"rules": {"context_tokens": CONTEXT, "dialect": dialect}},
                backend={"choose_negligible": 0},
                weights="fake:0.7",
                max_top=20,
            )
            for dialect, speaks in (
                ("sglang", "sglang"),
                ("vllm_v1", "vllm"),
                ("llama_server", "llamacpp"),
            )
        ),
        Kind(
            "dialect_tgi",
            launch="scripted",
            speaks="tgi",
            settings={"rules": {"context_tokens": CONTEXT, "dialect": "tgi"}},
            weights="fake:0.7",
            by_text=True,
            any_name=True,
        ),
        Kind(
            "scripted",
            settings={"rules": {"context_tokens": CONTEXT}},
            weights="fake:0.7",
        ),
        Kind("fake", weights="fake:0.7"),
        Kind(
            "embedded",
            settings={"threads": 1, "max_model_len": CONTEXT},
            tolerance=1e-4,
            marks=(pytest.mark.slow, pytest.mark.models),
        ),
        Kind(
            "vllm",
            settings={
                "dtype": "float32",
                "max_model_len": CONTEXT,
                "enforce_eager": True,
                "cpu_kv_cache_gb": 1,
                "cpu_threads": 1,
                "extra_args": ["--max-logprobs", "16"],
            },
            # So that labels are missing and asked for by id.
            backend={"choose_top_logprobs": 4, "choose_negligible": 0},
            tolerance=1e-4,
            max_top=16,
            marks=(pytest.mark.slow, pytest.mark.models, pytest.mark.vllm),
        ),
        Kind(
            "llamacpp",
            settings={
                "max_model_len": CONTEXT,
                "slots": 4,
                "threads": 1,
                "cache_type": "f32",
                "flash_attention": "off",
            },
            # So that labels are missing and forced one by one.
            backend={"choose_top_logprobs": 4, "choose_negligible": 0},
            tolerance=2e-4,
            marks=(pytest.mark.slow, pytest.mark.models, pytest.mark.llamacpp),
        ),
    )
}


SMOLLM2 = PUBLISHED[0].weights
"""A real chat model of 135 million parameters, with 49,152 tokens."""
_LONG: Final = (pytest.mark.long,)
REAL_KINDS = {
    name: replace(
        KINDS[name.partition("_")[0]],
        weights=SMOLLM2,
        rewritten=rewritten,
        tolerance=tolerance,
        marks=(*KINDS[name.partition("_")[0]].marks, pytest.mark.smollm2, *longer),
    )
    for name, tolerance, rewritten, longer in (
        ("embedded", 1e-4, "", ()),
        # A label's errors add up over its tokens: at most 6.7e-5 a token, 1.2e-4 a label.
        ("vllm", 2e-4, "", _LONG),
        ("llamacpp", 1e-3, "f32", _LONG),
        # Weights and what they are multiplied by are rounded to 11 bits.
        ("llamacpp_f16", 0.1, "f16", _LONG),
        # What weights are multiplied by is rounded to 8 bits: no error, but another model.
        ("llamacpp_q4_1", 3.0, "", _LONG),
    )
}
"""The same servers with that model, llama-server with it in several number formats."""


@dataclass(frozen=True)
class Running:
    """A server that is ready."""

    kind: Kind
    server: RunningServer

    @contextlib.asynccontextmanager
    async def connected(
        self, model: str = MODEL, *, settings: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Backend]:
        """A back-end to one of its models; `settings` go over those of the kind."""
        endpoint = Endpoint(
            base_url=self.server.base_url, model=model, api_key=self.server.api_key, **options
        )
        launch = contracts.load(LaunchKind, self.kind.launch or self.kind.name)
        found = contracts.load(BackendKind, self.kind.speaks or launch.backend)
        config = found.Config(**{**self.kind.backend, **(settings or {})})
        backend = found(config).connect(endpoint)
        try:
            yield backend
        finally:
            await backend.close()


@contextlib.contextmanager
def running(kind: Kind, log: Path) -> Iterator[Running]:
    """A server of a kind, ended with the block."""
    launch = contracts.load(LaunchKind, kind.launch or kind.name)
    weights = str(_rewritten(kind)) if kind.rewritten else kind.weights
    models = (ServedModel(MODEL, weights),)
    server = asyncio.run(_start(launch(launch.Config(**kind.settings)), models, log))
    try:
        yield Running(kind, server)
    finally:
        asyncio.run(_stop(server))


def _rewritten(kind: Kind) -> Path:
    """The GGUF file of a kind in its number format, made where it is missing."""
    source = llamacpp.resolve(kind.weights)
    file = make_gguf.MADE / f"{source.name.partition('.')[0]}.{kind.rewritten}.gguf"
    if not file.exists() or file.stat().st_mtime < source.stat().st_mtime:
        make_gguf.write_dequantised(source, file, kind.rewritten)
    return file


async def _start(launch: LaunchKind, models: tuple[ServedModel, ...], log: Path) -> RunningServer:
    return await launch.start(models, log)


async def _stop(server: RunningServer) -> None:
    await server.stop()
