"""The embedded server: our own OpenAI-compatible server over `transformers`, run as a process.

Here is its launch kind only; it imports no torch. The server is `launch.embedded.server`, the
models that come with it are in `models/`. Python files that come with a model are never run.
"""

from functools import partial
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, NonNegativeInt, field_validator

from launch import _memory, _spec, _weights
from launch._spec import HOST, ServerSpec, python_module
from launch._starting import CARRIED, start_server
from orchestrator.errors import LaunchError, need
from orchestrator.plugins.base import Settings
from orchestrator.serving import Footprint, LaunchKind, RunningServer, ServedModel, ServeOptions

MAX_ROWS: Final = 128
"""Answers of a model that decode at the same time, where nobody says how many."""
PREFIX_BYTES: Final = 256 << 20
"""Prefix cache of each model, where nobody says how large."""
NO_MPS: Final = (
    "device mps has no float64, in which probabilities are added up here: use cpu or cuda, or "
    "serve a GGUF file by llama-server"
)

_NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors", "starlette", "uvicorn")
_ENV = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class Config(Settings):
    """Settings of the embedded server."""

    threads: int | None = Field(
        None, ge=1, le=1024, description="Number of CPU threads; null leaves it to the server."
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="Number format of weights and activations."
    )
    device: str = Field(
        "cpu", pattern=r"^(cpu|mps|cuda(:\d+)?)$", description="cpu, cuda, or cuda:1, …"
    )
    max_model_len: int | None = Field(
        None,
        ge=16,
        description="Maximum length of prompt and answer in tokens; null: the model's own.",
    )
    kv_cache_mb: int | None = Field(
        None,
        ge=1,
        description="Memory for keys and values of the requests under way, in MiB, of each model; "
        "null: together a quarter of what is free when they are loaded.",
    )
    attention_tokens: int = Field(
        4096, ge=0, description="Longest sequence, in tokens, whose attention may be asked for."
    )
    weight_noise: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Make the model worse by Gaussian noise in each weight matrix: its standard "
        "deviation as a multiple of the matrix's own. For tests with models of known order.",
    )
    noise_seed: int = Field(0, ge=0, description="Seed of `weight_noise`.")
    skip_layers: tuple[NonNegativeInt, ...] = Field(
        (), description="Make the model worse by leaving out these layers, counted from 0."
    )
    start_timeout_s: float = Field(
        300.0, gt=0, description="Time from start to ready, including loading, in seconds."
    )

    @field_validator("device")
    @classmethod
    def _refuse_mps(cls, value: str) -> str:
        if value == "mps":
            raise ValueError(NO_MPS)
        return value


def argv(
    config: Config, folders: tuple[tuple[str, Path], ...], port: int, host: str = HOST
) -> tuple[str, ...]:
    """Command line of a server for models by name and folder."""
    models = [part for name, folder in folders for part in ("--model", f"{name}={folder}")]
    settings = {
        "--host": host,
        "--port": port,
        "--dtype": config.dtype,
        "--device": config.device,
        "--threads": config.threads,
        "--max-model-len": config.max_model_len,
        "--kv-cache-mb": config.kv_cache_mb,
        "--attention-tokens": config.attention_tokens,
        "--weight-noise": config.weight_noise or None,
        "--noise-seed": config.noise_seed if config.weight_noise else None,
        "--skip-layers": ",".join(map(str, config.skip_layers)) or None,
    }
    return python_module("launch.embedded.server", *models, *_spec.arguments(settings))


def _named(entry: str) -> tuple[str, Path]:
    """Name and folder of what may be a folder, a GGUF file or `bundled:NAME` without a name."""
    name, separator, weights = entry.partition("=")
    if not separator:
        last = entry.removeprefix("bundled:").rstrip("/").rpartition("/")[2]
        name, weights = last.removesuffix(_weights.GGUF_SUFFIX), entry
    return name, _weights.folder_now(weights)


class Launch(LaunchKind[Config]):
    """Our own server over `transformers`, one process for all its models."""

    backend = "embedded"
    multi_model = True
    carried = CARRIED

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: hashes of weights, tokenizer and template; dtype."""
        config, worse = self.config, {}
        if config.weight_noise:
            worse["weight_noise"] = f"{config.weight_noise!r}, seed {config.noise_seed}"
        if config.skip_layers:
            worse["skip_layers"] = ", ".join(map(str, sorted(set(config.skip_layers))))
        return {"kind": self.backend, "dtype": config.dtype, **worse, **_weights.identity(weights)}

    def check_installed(self) -> None:
        """See `LaunchKind`."""
        need("the embedded server", "embedded", _NEEDED)

    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """A server for all `models` that is ready to answer."""
        if self.carrier is None:
            self.check_installed()
        for model in models:
            if "=" in model.name:
                raise LaunchError(f"the model name {model.name!r} must not hold '='")
        folders = tuple([(model.name, await _weights.folder(model.weights)) for model in models])
        spec = ServerSpec(
            kind=self.backend,
            names=tuple(model.name for model in models),
            argv=partial(argv, self.config, folders),
            env=_ENV,
            start_timeout_s=self.config.start_timeout_s,
            takes_socket=True,
        )
        return await start_server(spec, log_path, self.carrier)

    def footprint(self, models: tuple[ServedModel, ...]) -> Footprint | None:
        """The GPU memory it needs; None off the GPU, or where the recipe names the GPU."""
        if self.config.device != "cuda":
            return None
        needs = [
            _memory.footprint(
                _weights.resolve(model.weights),
                dtype=self.config.dtype,
                max_model_len=self.config.max_model_len,
                sequences=MAX_ROWS,
            )
            for model in models
        ]
        # One process takes turns with its models: activations of one at a time, caches of all.
        return Footprint(
            weights=sum(need.weights for need in needs),
            cache=sum(need.cache + PREFIX_BYTES for need in needs),
            cache_wanted=sum(need.cache_wanted + PREFIX_BYTES for need in needs),
            overhead=max(need.overhead for need in needs),
        )

    def placed(self, gpus: tuple[str, ...], memory_fraction: float) -> Self:  # noqa: ARG002 (it takes what it needs, no fixed share)
        """The settings with which it runs on this GPU."""
        return type(self)(
            self.config.model_copy(update={"device": f"cuda:{_memory.ordinal(gpus[0])}"})
        )

    def serve_command(self, options: ServeOptions) -> tuple[str, ...]:
        """Return the command line of a server of folders, GGUF files and bundled models.

        Raises:
            LaunchError: If weights are missing.
            UsageError: If the extra `[embedded]` is not installed.
        """
        self.check_installed()
        # What is wrong with them is said by the server.
        given = {"dtype": options.dtype, "device": options.device, "threads": options.threads}
        config = Config().model_copy(update=given)
        return argv(config, tuple(map(_named, options.models)), options.port, options.host)
