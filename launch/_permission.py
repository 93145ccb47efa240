"""Settings of a server by which a recipe would have this machine run code of its own.

A recipe may come from somebody else. Naming one of our kinds of servers runs a program that the
user installed; another program, a variable that loads code into it, or an argument that does, needs
the permission that code beside a recipe needs (`--allow-code`).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Protocol

from orchestrator.serving import Program

SAFE_VARIABLES: Final = frozenset({
    "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "HF_HUB_OFFLINE",
    "HIP_VISIBLE_DEVICES", "LANG", "LC_ALL", "MKL_NUM_THREADS", "NCCL_DEBUG", "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "ROCR_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_OFFLINE", "TZ",
    "VLLM_ATTENTION_BACKEND", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_ENGINE_ITERATION_TIMEOUT_S", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_LOGGING_LEVEL",
    "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD",
})  # fmt: skip
"""Environment variables that change how a server runs, but load no code into it."""


class Settings(Protocol):
    """Common settings of the kinds that launch foreign servers."""

    @property
    def extra_args(self) -> tuple[str, ...]:
        """Further arguments."""

    @property
    def env(self) -> dict[str, str]:
        """Further environment variables."""


def needing(
    settings: Settings,
    named: Mapping[str, tuple[str | None, Collection[str | None]]],
    safe_arguments: Collection[str],
) -> tuple[Program, ...]:
    """Return the settings that need permission to run code, each with the reason.

    Args:
        settings: Of a server.
        named: Settings that name a program: the value of each, and the values that need no
            permission.
        safe_arguments: Names of further arguments that load no code and write no file.
    """
    programs = (
        Program(name, f"{value!r} is a program of the recipe's choice")
        for name, (value, harmless) in named.items()
        if value not in harmless
    )
    variables = (
        Program("env", f"{name} may load code into the server")
        for name in sorted(settings.env.keys() - SAFE_VARIABLES)
    )
    arguments = (
        Program(
            "extra_args",
            f"{name} is not on the list of safe arguments{_setting_for(name, settings)}",
        )
        for name in _names(settings.extra_args)
        if name not in safe_arguments
    )
    return (*programs, *variables, *arguments)


def _setting_for(name: str, settings: Settings) -> str:
    """Name the setting that does what an argument does, as the end of a sentence."""
    setting = name.lstrip("-").replace("-", "_")
    is_one = setting in getattr(type(settings), "model_fields", {})
    return f" (there is a setting {setting!r})" if is_one else ""


def _names(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield the names among arguments; what stands before the first name counts as one."""
    for index, argument in enumerate(arguments):
        if argument.startswith("-") and not _is_number(argument):
            yield argument.partition("=")[0]
        elif index == 0:
            yield argument


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True
