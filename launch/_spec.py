"""A server to start: its program, arguments, environment and ports, and how it is known to be ours.

A server is a foreign program that runs for hours and writes logs: it gets what it needs to find its
libraries, devices and caches, and no credentials. A recipe names those that it needs by `env_from`.
"""

import os
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from launch._watchdog import LISTENING
from orchestrator.disk.paths import expanded
from orchestrator.errors import LaunchError
from orchestrator.secrets import is_secret, is_secret_name

if TYPE_CHECKING:
    from pydantic import ValidationInfo

_LOWEST: Final = 10_240
_MANY: Final = 22_528
_APART: Final = 7_919


def given() -> socket.socket | None:
    """Return the bound socket that the supervisor has passed to this process; None without one."""
    number = os.environ.pop(LISTENING, "")
    return socket.socket(fileno=int(number)) if number else None


def beside(port: int, n: int) -> int:
    """The n-th further port (n from 1) of the server at `port`, below those that systems hand out.

    A pure function, so that servers with different ports rarely meet, and command lines can be
    tested.
    """
    return _LOWEST + (port + n * _APART) % _MANY


def processors() -> int:
    """Processors that this process may use, where the system says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


VML: Final = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin",
    "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
"""Functions that `torch` leaves to MKL's vector mathematics."""


def use_threads(n: int) -> None:
    """Let this thread compute with `n` threads of `torch`, exactly from the first number on.

    MKL chooses the code of each function of `VML` at its first call. Where several threads make
    that call at once, one of them may take code of 12 bits for its share of the numbers
    (pytorch/pytorch#188792; `python -m benchmarks.first_calls` counts). So each function
    is called once here, for one number.
    """
    import torch  # noqa: PLC0415 (takes seconds, and most that import this module compute nothing)

    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.float64):
        for name in VML:
            getattr(torch, name)(torch.full((1,), 0.5, dtype=dtype))
    torch.set_num_threads(n)


INHERITED: Final = frozenset({
    "CC", "CXX", "CPATH", "CURL_CA_BUNDLE", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT",
    "DOCKER_HOST", "DOCKER_TLS_VERIFY", "DYLD_FALLBACK_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME",
    "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "LOGNAME", "MALLOC_CONF",
    "MAX_JOBS", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TEMP", "TMP", "TMPDIR", "TZ", "USER",
    "VIRTUAL_ENV",
})  # fmt: skip
"""Variables that every server gets. Proxies are not among them: servers fetch nothing."""

INHERITED_PREFIXES: Final = (
    "CONDA_", "CUBLAS_", "CUDA_", "CUDNN_", "FLASHINFER_", "GGML_", "GLOO_", "GOMP_", "HF_",
    "HIP_", "HSA_", "KMP_", "LC_", "MKL_", "NCCL_", "NUMEXPR_", "NVIDIA_", "OMP_", "OPENBLAS_",
    "PYTHON", "PYTORCH_", "RCCL_", "ROCM_", "ROCR_", "SGLANG_", "SGL_", "TOKENIZERS_", "TORCH_",
    "TORCHINDUCTOR_", "TRANSFORMERS_", "TRITON_", "VLLM_", "XDG_",
)  # fmt: skip
"""The same for all variables that begin so, but for those that are called secrets."""

# Left over from another server, this redirects one that inherits it.
_LEFTOVERS: Final = frozenset(("VLLM_PORT",))
_SHORTEST_HIDDEN: Final = 4


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a server gets."""
    return {
        name: value
        for name, value in variables.items()
        if not (name in _LEFTOVERS or is_secret_name(name))
        and (name in INHERITED or name.startswith(INHERITED_PREFIXES))
    }


def refuse_secrets(env: Mapping[str, str], arguments: Collection[str]) -> None:
    """Refuse secrets in settings: a recipe is copied into each revision of a run and into reports.

    Raises:
        ValueError: With the way to pass it, and without the value.
    """
    for name, value in env.items():
        if is_secret_name(name) or is_secret(value):
            raise ValueError(
                f"env: {name} looks like a secret and would be stored with the run; set it in "
                f"your environment and name it in `env_from: [{name}]`"
            )
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        is_called_so = name.startswith("-") and is_secret_name(name)
        if is_called_so or is_secret(value if has_value else argument):
            shown = name if name.startswith("-") else "a value"
            raise ValueError(
                f"extra_args: {shown} looks like a secret, which would be stored with the run and "
                f"shown in the list of processes; set the server's own variable in your "
                f"environment and name it by `env_from: [NAME]`"
            )


HOST: Final = "127.0.0.1"
KEY_VARIABLE: Final = "ORCHESTRATOR_SERVER_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server to start.

    Attributes:
        kind: Launch kind, for messages.
        names: Models that it must list before it counts as ready.
        argv: From a port, and perhaps an address, to the command line; never holds the key. Where
            several machines share the model these are those of the first, which answers, and the
            machine's rank with the addresses of all follows.
        env: Variables added to those that are inherited.
        env_from: Names of variables of this process that it gets too, secrets mostly.
        key_variable: The variable by which it takes its key.
        start_timeout_s: From start to ready.
        stop_grace_s: Between SIGTERM and SIGKILL.
        takes_socket: True for a server of ours, which listens at the socket that it is given
            (`given`). Others are proved to listen before they are sent the key.
    """

    kind: str
    names: tuple[str, ...]
    argv: Callable[..., tuple[str, ...]]
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    key_variable: str = KEY_VARIABLE
    start_timeout_s: float = 300.0
    stop_grace_s: float = 10.0
    takes_socket: bool = False

    def watched(self, argv: Sequence[str], host: str, port: int) -> list[str]:
        """Return the words for a watchdog that runs a command, and ends it when we are gone."""
        return [str(self.stop_grace_s), host, str(port), *argv]


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Command line that runs a module of ours with this interpreter.

    `-P` keeps the working directory off the module path, and `orchestrator.plugins` has our
    `launch` come before another one on PYTHONPATH.
    """
    return (sys.executable, "-P", "-m", "orchestrator.plugins", module, *arguments)


def environment(
    ours: Mapping[str, str], spec: ServerSpec, api_key: str
) -> tuple[dict[str, str], list[str]]:
    """Environment of a server, and what of it no message may repeat.

    Args:
        ours: The environment of this process, of which it gets what is harmless and what the
            recipe names.
        spec: Of the server.
        api_key: Of the server.

    Raises:
        LaunchError: If a variable that the recipe names is not set.
    """
    if missing := sorted(name for name in spec.env_from if not ours.get(name)):
        raise LaunchError(f"env_from: the environment variable {missing[0]} is not set")
    named = {name: ours[name] for name in spec.env_from}
    kept = inherited(ours) | {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"} | named
    env = {**kept, **spec.env, spec.key_variable: api_key}
    hidden = (
        value
        for name, value in env.items()
        if (name in spec.env_from or is_secret_name(name)) and len(value) >= _SHORTEST_HIDDEN
    )
    return env, [api_key, *hidden]


PROJECT: Final = Path(__file__).parents[1]
CUDA: Final = "CUDA_VISIBLE_DEVICES"


def in_folder(path: str, info: "ValidationInfo") -> str:
    """A path that may start from the recipe's folder, in full."""
    return str(Path((info.context or {}).get("folder", "."), expanded(path)).absolute())


def program_in_folder(program: str, info: "ValidationInfo") -> str:
    """A program as it is run: a name stays, a path may start from the recipe's folder."""
    return in_folder(program, info) if "/" in program else program


def adapter_arguments(name: str, adapters: Mapping[str, str]) -> tuple[str, ...]:
    """Arguments that load LoRA adapters, given by name and folder; none without adapters."""
    pairs = (f"{adapter}={folder}" for adapter, folder in sorted(adapters.items()))
    return ("--enable-lora", name, *pairs) if adapters else ()


def arguments(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Arguments and their values for a command line, without those that are None."""
    given = ((name, str(value)) for name, value in settings.items() if value is not None)
    return tuple(chain.from_iterable(given))


def visible(gpus: Iterable[int | str] | None) -> dict[str, str]:
    """Variables that show a server these GPUs, or leave it what it has."""
    if gpus is None:
        return {}
    # NVML and nvidia-smi count as the bus does, CUDA only when told so.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", CUDA: ",".join(map(str, gpus))}
