"""SGLang as a server process, `python -m sglang.launch_server`: one process a model.

SGLang needs a GPU and an environment of its own; `python` names that environment's interpreter.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field

from launch import _sglang_main, _spec
from launch._foreign import FolderConfig, FolderLaunch, PathSetting
from launch._spec import HOST, KEY_VARIABLE, beside
from orchestrator.serving import ServedModel

_ENV: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # Else sampled tokens have log-probabilities after the temperature.
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "1",
    # Else each question after its health draws a token, which waits behind all others.
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
    # Longer than any client of ours keeps a connection, so that none is closed while it is used.
    "SGLANG_TIMEOUT_KEEP_ALIVE": "120",
}


class Config(FolderConfig):
    """Settings of an SGLang server."""

    own_arguments = frozenset((
        "--api-key", "--host", "--port", "--served-model-name", "--model-path", "--model",
        "--load-format", "--tokenizer-path", "--sampling-defaults", "--config", "--lora-paths",
        "--dist-init-addr", "--nnodes", "--node-rank",
    ))  # fmt: skip
    own_variables = frozenset((KEY_VARIABLE, "SGLANG_RETURN_ORIGINAL_LOGPROB"))
    spoiling = (
        ("--speculative.*", "speculative decoding spoils log-probabilities"),
        ("--allow-auto-truncate", "a prompt that is cut in silence spoils scores"),
    )

    python: str = Field(
        "python3", min_length=1, description="The interpreter that has SGLang: a name or a path."
    )
    context_length: int | None = Field(
        None,
        ge=16,
        description="Maximum length of prompt and answer in tokens; null: the model's own.",
    )
    mem_fraction_static: float | None = Field(
        None, gt=0, lt=1, description="Share of GPU memory for weights and KV cache; null: its own."
    )
    deterministic: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="If true, seeds count and batches change nothing; else seeds are ignored.",
    )
    lora_paths: dict[str, PathSetting] = Field(
        default_factory=dict,
        description="Folders of LoRA adapters (relative to the recipe) by their names; the one "
        "with the model's own name answers.",
    )


def argv(
    config: Config,
    python: str,
    model: ServedModel,
    port: int,
    host: str = HOST,
    part: tuple[int, Sequence[str]] = (0, ()),
) -> tuple[str, ...]:
    """Command line of a server; `model.weights` is a folder.

    `part` is the rank of this process, and the addresses of all that share the model.
    """
    rank, hosts = part
    settings = {
        "--model-path": model.weights,
        "--served-model-name": model.name,
        "--host": HOST if rank else host,
        "--port": port,
        # Else two servers of one machine take the same ones.
        "--nccl-port": beside(port, 1),
        "--engine-info-bootstrap-port": beside(port, 2),
        # Never pickled weights, which are in no identity.
        "--load-format": None if config.quantization == "bitsandbytes" else "safetensors",
        "--dtype": config.dtype,
        "--tp": config.tensor_parallel_size,
        # Of the server; requests have their own.
        "--random-seed": 0,
        # Else temperature, top-p and penalties of the model's generation_config.json leak in.
        "--sampling-defaults": "openai",
        "--quantization": config.quantization,
        "--context-length": config.context_length,
        "--mem-fraction-static": config.mem_fraction_static,
    }
    if hosts:
        settings |= {"--nnodes": len(hosts), "--node-rank": rank}
        settings["--dist-init-addr"] = f"{host}:{beside(port, 3)}"
    flags = ["--enable-metrics", "--enable-cache-report"]
    if config.deterministic:
        flags.append("--enable-deterministic-inference")
    adapters = _spec.adapter_arguments("--lora-paths", config.lora_paths)
    main = str(Path(_sglang_main.__file__))
    return (python, main, *_spec.arguments(settings), *flags, *adapters, *config.extra_args)


class Launch(FolderLaunch[Config]):
    """SGLang, one process a model."""

    backend = "sglang"
    argv = staticmethod(argv)
    own_env = _ENV
    program_setting = "python"
    program = "python3"
    advice = "name the interpreter of SGLang's environment by `python`"
    memory_settings: ClassVar = {"max_model_len": "context_length"}
    share_setting = "mem_fraction_static"
    adapters_setting = "lora_paths"
    safe_arguments = frozenset((
        "--attention-backend", "--chunked-prefill-size", "--cuda-graph-max-bs",
        "--data-parallel-size", "--disable-cuda-graph", "--disable-overlap-schedule",
        "--disable-radix-cache", "--dp", "--dp-size", "--ep-size", "--kv-cache-dtype",
        "--log-level", "--max-running-requests", "--max-total-tokens", "--page-size", "--pp-size",
        "--random-seed", "--sampling-backend", "--schedule-conservativeness", "--schedule-policy",
        "--watchdog-timeout",
    ))  # fmt: skip

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers."""
        mode = {"deterministic": "true"} if self.config.deterministic else {}
        return super().identity(weights) | mode

    def backend_settings(self, model: str) -> dict[str, object]:
        """Return settings that the back-end can't learn from the server, such as the adapter."""
        adapter = {"lora_path": model} if model in self.config.lora_paths else {}
        return {"original_logprobs": True, **adapter}
