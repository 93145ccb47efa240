"""SGLang as a server process, `python -m sglang.launch_server`: one process a model.

SGLang needs a GPU and an environment of its own; `python` names that environment's interpreter.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from launch import _memory, _permission, _settings, _sglang_main, _weights
from launch._ports import beside
from launch._spec import HOST, ServerSpec
from launch._supervisor import CARRIED, start_server
from orchestrator.errors import LaunchError
from orchestrator.serving import Footprint, LaunchKind, Program, RunningServer, ServedModel
from orchestrator.settings import Settings

KIND = "sglang"

_OWN_ARGUMENTS: Final = frozenset((
    "--api-key", "--host", "--port", "--served-model-name", "--model-path", "--model",
    "--load-format", "--tokenizer-path", "--sampling-defaults", "--config", "--lora-paths",
))  # fmt: skip
_OWN_VARIABLES: Final = frozenset(("ORCHESTRATOR_SERVER_KEY", "SGLANG_RETURN_ORIGINAL_LOGPROB"))
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

_SAFE_ARGUMENTS: Final = frozenset((
    "--attention-backend", "--chunked-prefill-size", "--cuda-graph-max-bs", "--disable-cuda-graph",
    "--disable-overlap-schedule", "--disable-radix-cache", "--ep-size", "--kv-cache-dtype",
    "--log-level", "--max-running-requests", "--max-total-tokens", "--page-size", "--pp-size",
    "--sampling-backend", "--schedule-conservativeness", "--schedule-policy",
    "--watchdog-timeout",
))  # fmt: skip


class Config(Settings):
    """Settings of an SGLang server."""

    python: str = Field(
        "python3", min_length=1, description="The interpreter that has SGLang: a name or a path."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of weights and activations; auto: the model's own."
    )
    quantization: str | None = Field(
        None, min_length=1, description="Quantisation of weights, as SGLang names it."
    )
    context_length: int | None = Field(
        None,
        ge=16,
        description="Maximum length of prompt and answer in tokens; null: the model's own.",
    )
    mem_fraction_static: float | None = Field(
        None, gt=0, lt=1, description="Share of GPU memory for weights and KV cache; null: its own."
    )
    tensor_parallel_size: int = Field(1, ge=1, description="Number of GPUs that share one model.")
    data_parallel_size: int = Field(1, ge=1, description="Copies of the model in this server.")
    gpus: tuple[int, ...] | None = Field(
        None, min_length=1, description="Indices of the visible GPUs; null: all."
    )
    deterministic: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="If true, seeds count and batches change nothing; else seeds are ignored.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Of the server; requests have their own.")
    lora_paths: dict[str, str] = Field(
        default_factory=dict,
        description="Folders of LoRA adapters (relative to the recipe) by their names; the one "
        "with the model's own name answers.",
    )
    extra_args: tuple[str, ...] = Field((), description="Further arguments of the server.")
    env: dict[str, str] = Field(
        default_factory=dict, description="Further environment variables; no secrets."
    )
    env_from: tuple[_settings.VariableName, ...] = Field(
        (),
        description=(
            "Names of variables of your environment to pass to the server, such as HF_TOKEN; "
            "their values are not stored."
        ),
    )
    start_timeout_s: float = Field(
        900.0,
        gt=0,
        description="Time from start to ready, including loading and compiling, in seconds.",
    )
    stop_grace_s: float = Field(
        20.0, ge=0, description="Time between SIGTERM and SIGKILL, in seconds."
    )

    @field_validator("lora_paths")
    @classmethod
    def _find_adapters(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        return {name: _settings.in_folder(folder, info) for name, folder in value.items()}

    @model_validator(mode="after")
    def _leave_alone_what_is_ours(self) -> Self:
        _settings.refuse(self, _OWN_ARGUMENTS, _OWN_VARIABLES)
        for argument in self.extra_args:
            if argument.startswith("--speculative"):
                raise ValueError("extra_args: speculative decoding spoils log-probabilities")
            if argument.partition("=")[0] == "--allow-auto-truncate":
                raise ValueError("extra_args: a prompt that is cut in silence spoils scores")
        return self


def argv(
    config: Config, python: str, model: ServedModel, port: int, host: str = HOST
) -> tuple[str, ...]:
    """Command line of a server; `model.weights` is a folder."""
    settings = {
        "--model-path": model.weights,
        "--served-model-name": model.name,
        "--host": host,
        "--port": port,
        # Else two servers of one machine take the same ones.
        "--nccl-port": beside(port, 1),
        "--engine-info-bootstrap-port": beside(port, 2),
        # Never pickled weights, which are in no identity.
        "--load-format": None if config.quantization == "bitsandbytes" else "safetensors",
        "--dtype": config.dtype,
        "--tp": config.tensor_parallel_size,
        "--dp": config.data_parallel_size,
        "--random-seed": config.seed,
        # Else temperature, top-p and penalties of the model's generation_config.json leak in.
        "--sampling-defaults": "openai",
        "--quantization": config.quantization,
        "--context-length": config.context_length,
        "--mem-fraction-static": config.mem_fraction_static,
    }
    flags = ["--enable-metrics", "--enable-cache-report"]
    if config.deterministic:
        flags.append("--enable-deterministic-inference")
    if config.lora_paths:
        adapters = [f"{name}={folder}" for name, folder in sorted(config.lora_paths.items())]
        flags += ["--enable-lora", "--lora-paths", *adapters]
    main = str(Path(_sglang_main.__file__))
    return (python, main, *_settings.arguments(settings), *flags, *config.extra_args)


def environment(config: Config) -> dict[str, str]:
    """Variables that a server gets beside its key."""
    return _ENV | _settings.visible(config.gpus) | config.env


class SglangLaunch(LaunchKind[Config]):
    """SGLang, one process a model."""

    backend = "sglang"
    carried = CARRIED

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: hashes of weights, tokenizer, adapters; formats.

        Raises:
            LaunchError: If the weights or an adapter are not there.
        """
        found = {"kind": KIND, "dtype": self.config.dtype, **_weights.identity(weights)}
        if self.config.quantization is not None:
            found["quantization"] = self.config.quantization
        if self.config.deterministic:
            found["deterministic"] = "true"
        return found | _weights.adapters(self.config.lora_paths) | _settings.identity(self.config)

    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """A server for the only one of `models` that is ready to answer.

        Raises:
            LaunchError: If weights or interpreter are missing, or it does not get ready, with the
                cause.
        """
        (model,) = models
        _settings.check_adapters(self.config.lora_paths, model.name, "lora_paths")
        served = ServedModel(model.name, str(await _weights.folder(model.weights)))
        python = _settings.find_program(self.config.python)
        if python is None:
            raise LaunchError(
                f"there is no interpreter {self.config.python!r}; name that of SGLang's "
                f"environment by `python`"
            )
        spec = ServerSpec(
            kind=KIND,
            names=(model.name,),
            argv=partial(argv, self.config, python, served),
            env=environment(self.config),
            env_from=self.config.env_from,
            start_timeout_s=self.config.start_timeout_s,
            stop_grace_s=self.config.stop_grace_s,
        )
        return await start_server(spec, log_path, self.carrier)

    def backend_settings(self, model: str) -> dict[str, object]:
        """Return settings that the back-end can't learn from the server, such as the adapter."""
        adapter = {"lora_path": model} if model in self.config.lora_paths else {}
        return {"original_logprobs": True, **adapter}

    def programs(self) -> Sequence[Program]:
        """Settings that have this machine run code of the recipe's choice, with the reasons."""
        python = (self.config.python, ("python3",))
        return _permission.needing(self.config, {"python": python}, _SAFE_ARGUMENTS)

    def footprint(self, models: tuple[ServedModel, ...]) -> Footprint | None:
        """The GPU memory it needs; None where the recipe says which GPUs it takes, or copies of it.

        Raises:
            LaunchError: If the weights are not there, or don't say what they need.
        """

        def measured() -> Footprint:
            (model,) = models
            return _memory.footprint(
                _weights.resolve(model.weights),
                dtype=self.config.dtype,
                max_model_len=self.config.context_length,
                quantization=self.config.quantization,
            )

        return _settings.split_need(self.config, measured, self.config.mem_fraction_static)

    def placed(self, gpus: tuple[str, ...], memory_fraction: float) -> Self:
        """The settings with which it runs on these GPUs and takes this share of their memory."""
        fraction = self.config.mem_fraction_static or memory_fraction
        update = {"mem_fraction_static": fraction, **_settings.split_over(self.config, gpus)}
        return type(self)(self.config.model_copy(update=update))

    def tokenizer(self, weights: str) -> tuple[Path, str]:
        """Find the file that spells tokens, with the tokenizer's hash in the identity.

        Raises:
            LaunchError: If the weights are not there.
        """
        return _weights.tokenizer(weights)
