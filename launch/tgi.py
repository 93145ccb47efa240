"""Text Generation Inference as a server process, one a model: its launcher, or its docker image.

TGI is in maintenance mode. Where `image` is given it runs in a container, with
the model's folder mounted read-only; it is ended by the signal that docker passes on, else by name.
"""

import secrets
from collections.abc import Collection, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from launch import _memory, _settings, _weights
from launch._foreign import FolderLaunch, ForeignConfig
from launch._spec import HOST, beside
from launch._supervisor import start_server
from orchestrator.errors import LaunchError
from orchestrator.serving import Footprint, RunningServer, ServedModel

KIND = "tgi"
KEY_VARIABLE: Final = "API_KEY"

_IN_CONTAINER: Final = "/model"
_PORT_IN_CONTAINER: Final = 3000
_ENV: Final = {"HF_HUB_OFFLINE": "1"}

_COMMAND: Final = "text-generation-launcher"
_MAX_TOP_N_TOKENS: Final = 32
_MAX_CONCURRENT_REQUESTS: Final = 512


class Config(ForeignConfig):
    """Settings of a TGI server."""

    own_arguments = frozenset(
        ("--api-key", "--hostname", "--port", "-p", "--model-id", "--enable-prefill-logprobs")
    )
    own_variables = frozenset((KEY_VARIABLE,))
    spoiling = (("--speculate", "speculative decoding spoils log-probabilities"),)

    command: str = Field(
        _COMMAND,
        min_length=1,
        description="The launcher, a name or a path; with `image` the program docker or podman.",
    )
    image: str | None = Field(
        None, min_length=1, description="Image to run it from; null: the launcher is installed."
    )
    dtype: Literal["auto", "bfloat16", "float16"] = Field(
        "auto", description="Number format of weights and activations; auto: TGI's own."
    )
    quantize: str | None = Field(
        None, min_length=1, description="Quantisation of weights, as TGI names it."
    )
    num_shard: int = Field(1, ge=1, description="Number of GPUs that share one model.")
    cuda_memory_fraction: float | None = Field(
        None, gt=0, le=1, description="Share of each GPU's memory to take; null: all that is free."
    )
    max_total_tokens: int | None = Field(
        None, ge=2, description="Longest prompt and answer; null: its own."
    )


def argv(config: Config, command: str, folder: str, container: str, port: int) -> tuple[str, ...]:
    """Command line of a server for the model in a folder.

    Args:
        config: Of the server.
        command: The launcher, or docker.
        folder: Of the model.
        container: What the names of containers begin with.
        port: On our loopback.
    """
    if config.image is None:
        return (command, *_arguments(config, folder, HOST, port))
    # Loopback on our side, any address on the container's, which has a network of its own.
    inside = _arguments(config, _IN_CONTAINER, "0.0.0.0", _PORT_IN_CONTAINER)  # noqa: S104
    shown = "all" if config.gpus is None else f'"device={",".join(map(str, config.gpus))}"'
    variables = chain.from_iterable(("-e", f"{k}={v}") for k, v in (_ENV | config.env).items())
    return (
        command,
        "run",
        "--rm",
        "--init",
        f"--name={container}-{port}",
        "--shm-size=1g",
        f"--gpus={shown}",
        f"--publish={HOST}:{port}:{_PORT_IN_CONTAINER}",
        f"--volume={folder}:{_IN_CONTAINER}:ro",
        # By name alone: docker takes the value from its own environment, no command line holds it.
        "-e",
        KEY_VARIABLE,
        *chain.from_iterable(("-e", name) for name in config.env_from),
        *variables,
        config.image,
        *inside,
    )


def _removal(command: str, container: str, port: int) -> tuple[str, ...]:
    """Command that ends a container whose client was killed."""
    return (command, "rm", "--force", f"{container}-{port}")


def _publication(command: str, container: str, port: int) -> tuple[str, ...]:
    """Command that succeeds once a container has its port, which is docker's until then."""
    return (command, "port", f"{container}-{port}", str(_PORT_IN_CONTAINER))


def _arguments(config: Config, folder: str, host: str, port: int) -> tuple[str, ...]:
    settings = {
        "--model-id": folder,
        "--hostname": host,
        "--port": port,
        # Else two servers of one machine take the same ones.
        "--master-port": beside(port, 1),
        "--shard-uds-path": f"/tmp/orchestrator-tgi-{port}",  # noqa: S108 (a socket of TGI's)
        "--num-shard": config.num_shard,
        "--max-top-n-tokens": _MAX_TOP_N_TOKENS,
        "--max-concurrent-requests": _MAX_CONCURRENT_REQUESTS,
        "--dtype": None if config.dtype == "auto" else config.dtype,
        "--quantize": config.quantize,
        "--cuda-memory-fraction": config.cuda_memory_fraction,
        "--max-total-tokens": config.max_total_tokens,
    }
    return (*_settings.arguments(settings), "--enable-prefill-logprobs", *config.extra_args)


def environment(config: Config) -> dict[str, str]:
    """Variables that the launcher gets beside its key; docker is given them on its command line."""
    if config.image is not None:
        return {}
    return _ENV | _settings.visible(config.gpus) | config.env


class TgiLaunch(FolderLaunch[Config]):
    """Text Generation Inference, one process a model."""

    backend = "tgi"
    key_variable = KEY_VARIABLE
    share_setting = "cuda_memory_fraction"
    split_setting = "num_shard"
    stop_grace_s = 30.0
    safe_arguments = frozenset((
        "--cuda-graphs", "--disable-grammar-support", "--json-output", "--kv-cache-dtype",
        "--max-batch-prefill-tokens", "--max-batch-size", "--max-batch-total-tokens",
        "--max-best-of", "--max-client-batch-size", "--max-concurrent-requests",
        "--max-input-tokens", "--max-stop-sequences", "--max-top-n-tokens", "--max-waiting-tokens",
        "--payload-limit", "--rope-factor", "--rope-scaling", "--sharded", "--validation-workers",
        "--waiting-served-ratio",
    ))  # fmt: skip

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: hashes of weights, tokenizer; formats, image."""
        found = {"kind": KIND, "dtype": self.config.dtype, **_weights.identity(weights)}
        if self.config.quantize is not None:
            found["quantize"] = self.config.quantize
        if self.config.image is not None:
            found["image"] = self.config.image
        return found | self.config.deciding()

    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """A server for the only one of `models` that is ready to answer."""
        (model,) = models
        folder = str(await _weights.folder(model.weights))
        wanted = self.config.command
        if self.config.image is not None and wanted == _COMMAND:
            wanted = "docker"
        command = _settings.find_program(wanted)
        if command is None:
            raise LaunchError(
                f"there is no command {wanted!r}; name TGI's launcher by `command`, or its docker "
                f"image by `image`"
            )
        in_container = self.config.image is not None
        container = f"orchestrator-tgi-{secrets.token_hex(4)}"
        spec = self.spec(
            # TGI answers under any name and lists the folder as its model's.
            _IN_CONTAINER if in_container else folder,
            partial(argv, self.config, command, folder, container),
            environment(self.config),
            published=partial(_publication, command, container) if in_container else None,
            clean_up=partial(_removal, command, container) if in_container else None,
        )
        return await start_server(spec, log_path)

    def backend_settings(self, model: str) -> dict[str, object]:  # noqa: ARG002 (all alike)
        """Return settings that the back-end can't learn from the server: alternatives listed."""
        return {"top_n_tokens": _MAX_TOP_N_TOKENS}

    def named_programs(self) -> Mapping[str, tuple[str | None, Collection[str | None]]]:
        """See `launch._foreign.ForeignLaunch`."""
        return {
            "command": (self.config.command, (_COMMAND, "docker", "podman")),
            "image": (self.config.image, (None,)),
        }

    def need(self, folder: Path) -> Footprint:
        """See `launch._foreign.FolderLaunch`."""
        return _memory.footprint(
            folder,
            dtype=self.config.dtype,
            max_model_len=self.config.max_total_tokens,
            quantization=self.config.quantize,
        )
