"""vLLM as a server process, `vllm serve`: one process a model.

The command is `vllm` on the PATH, else that of `.venv-vllm` beside the project or where the program
was started (`make vllm` makes one for machines without a GPU).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

from pydantic import Field

from launch import _spec
from launch._foreign import FolderConfig, FolderLaunch, PathSetting, ProgramSetting
from launch._spec import HOST, beside
from orchestrator.serving import ServedModel

KEY_VARIABLE: Final = "VLLM_API_KEY"

_MAX_LOGPROBS: Final = 64
_ENV: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Longer than any client of ours keeps a connection, so that none is closed while it is used.
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120",
}


class Config(FolderConfig):
    """Settings of a vLLM server."""

    own_arguments = frozenset((
        "--api-key", "--host", "--port", "--served-model-name", "--model", "--lora-modules",
        "--logprobs-mode", "--load-format", "--tokenizer", "--headless", "--master-addr",
        "--master-port", "--nnodes", "-n", "--node-rank", "-r",
    ))  # fmt: skip
    own_variables = frozenset((KEY_VARIABLE, "VLLM_PORT"))
    spoiling = (
        (
            "-sc|--spec-method|--speculative.*",
            "with speculative decoding vLLM's log-probabilities are wrong",
        ),
    )

    command: ProgramSetting | None = Field(
        None,
        description="The program `vllm`, a name or a path (relative to the recipe); null: on the "
        "PATH, else in .venv-vllm beside the project.",
    )
    max_model_len: int | None = Field(
        None,
        ge=16,
        description="Maximum length of prompt and answer in tokens; null: the model's own.",
    )
    gpu_memory_utilization: float | None = Field(
        None, gt=0, le=1, description="Share of each GPU's memory to take; null: vLLM's own (0.92)."
    )
    max_num_seqs: int | None = Field(
        None, ge=1, description="Maximum number of requests computed together."
    )
    max_num_batched_tokens: int | None = Field(
        None,
        ge=16,
        description="Maximum number of tokens of a step; lower it if scoring long prompts takes "
        "too much memory.",
    )
    enforce_eager: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="If true, compile nothing: starts in a third of the time, runs slower.",
    )
    lora_modules: dict[str, PathSetting] = Field(
        default_factory=dict,
        description="Folders of LoRA adapters (relative to the recipe) by the names they are asked "
        "by; the one with the model's own name answers.",
    )
    cpu_kv_cache_gb: int | None = Field(
        None, ge=1, description="GiB for keys and values on a CPU; null: vLLM's own (4)."
    )
    cpu_threads: int | None = Field(
        None, ge=1, le=1024, description="Threads on a CPU, bound to no core; null: all, bound."
    )
    max_starting: int = Field(1, ge=1, description="Number of servers that load at the same time.")


def argv(
    config: Config,
    command: str,
    model: ServedModel,
    port: int,
    host: str = HOST,
    part: tuple[int, Sequence[str]] = (0, ()),
) -> tuple[str, ...]:
    """Command line of a server; `model.weights` is a folder.

    `part` is the rank of this process, and the addresses of all that share the model.
    """
    rank, hosts = part
    base = f"{model.name}:base" if model.name in config.lora_modules else model.name
    settings = {
        "--served-model-name": base,
        "--host": HOST if rank else host,
        "--port": port,
        # Never pickled weights, which are in no identity.
        "--load-format": None if config.quantization == "bitsandbytes" else "safetensors",
        "--dtype": config.dtype,
        # Else temperature, top-p and penalties of the model's generation_config.json leak in.
        "--generation-config": "vllm",
        "--logprobs-mode": "raw_logprobs",
        "--max-logprobs": _MAX_LOGPROBS,
        # Of the server; requests have their own.
        "--seed": 0,
        "--quantization": config.quantization,
        "--max-model-len": config.max_model_len,
        "--gpu-memory-utilization": config.gpu_memory_utilization,
        "--tensor-parallel-size": config.tensor_parallel_size,
        "--max-num-seqs": config.max_num_seqs,
        "--max-num-batched-tokens": config.max_num_batched_tokens,
    }
    if hosts:
        settings |= {"--nnodes": len(hosts), "--node-rank": rank, "--master-addr": host}
        settings |= {"--master-port": beside(port, 1), "--distributed-executor-backend": "mp"}
    flags = ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    if config.enforce_eager:
        flags.append("--enforce-eager")
    if rank:
        flags.append("--headless")
    return (
        # Else it may take an address that the others can't reach.
        *(("env", f"VLLM_HOST_IP={hosts[rank]}") if hosts else ()),
        command,
        "serve",
        model.weights,
        *_spec.arguments(settings),
        *flags,
        *_spec.adapter_arguments("--lora-modules", config.lora_modules),
        *config.extra_args,
    )


# Of each event loop, by the number of servers that may load at the same time.
_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]]] = (
    WeakKeyDictionary()
)


class Launch(FolderLaunch[Config]):
    """vLLM, one process a model."""

    backend = "vllm"
    argv = staticmethod(argv)
    own_env = _ENV
    key_variable = KEY_VARIABLE
    program = "vllm"
    own_program = Path(".venv-vllm", "bin", "vllm")
    advice = (
        "install vLLM, name its program by `command`, or run make vllm in a checkout, which "
        "makes .venv-vllm for machines without a GPU"
    )
    # Memory is shared out by fewer sequences than vLLM itself takes where there is room, 256.
    memory_settings: ClassVar = {
        "max_model_len": "max_model_len",
        "sequences": "max_num_seqs",
        "batched_tokens": "max_num_batched_tokens",
    }
    share_setting = "gpu_memory_utilization"
    adapters_setting = "lora_modules"
    safe_arguments = frozenset((
        "--async-scheduling", "--block-size", "--cpu-offload-gb", "--data-parallel-size",
        "--disable-custom-all-reduce", "--disable-log-requests", "--disable-log-stats", "-dp",
        "--enable-chunked-prefill", "--enable-expert-parallel", "--enable-prefix-caching",
        "--kv-cache-dtype", "--kv-cache-memory-bytes", "--max-logprobs",
        "--max-long-partial-prefills", "--max-lora-rank", "--max-num-partial-prefills",
        "--max-num-queued-reqs", "--no-enable-chunked-prefill", "--no-enable-prefix-caching",
        "--num-gpu-blocks-override", "--pipeline-parallel-size", "--rope-theta",
        "--scheduling-policy", "--seed", "--swap-space",
    ))  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Variables that a server gets beside its key."""
        found = {}
        if self.config.cpu_kv_cache_gb is not None:
            found["VLLM_CPU_KVCACHE_SPACE"] = str(self.config.cpu_kv_cache_gb)
        if self.config.cpu_threads is not None:
            # Bound to cores, several servers would take the same ones and leave others idle.
            found["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            found["OMP_NUM_THREADS"] = str(self.config.cpu_threads)
        return found | super().environment()

    def turn(self) -> contextlib.AbstractAsyncContextManager[object]:
        """Let in as many at a time as may load together on this machine."""
        if self.carrier is not None:
            # Servers on other machines load in memory of their own, and may wait for it for hours.
            return super().turn()
        bounds = _turns.setdefault(asyncio.get_running_loop(), {})
        n = self.config.max_starting
        return bounds.setdefault(n, asyncio.Semaphore(n))
