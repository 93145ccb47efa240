"""Environment variables that a server gets, and those that a recipe must not hold.

A server is a foreign program that runs for hours and writes logs: it gets what it needs to find its
libraries, devices and caches, and no credentials. A recipe names those that it needs by `env_from`.
"""

from collections.abc import Collection, Mapping
from typing import Final

from orchestrator.errors import LaunchError
from orchestrator.recipe.secret_values import is_secret, is_secret_name

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


def taken(names: Collection[str], variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that a recipe names by `env_from`.

    Raises:
        LaunchError: If one is not set.
    """
    missing = sorted(set(names) - {name for name in names if variables.get(name)})
    if missing:
        raise LaunchError(f"env_from: the environment variable {missing[0]} is not set")
    return {name: variables[name] for name in names}


def secrets_in(variables: Mapping[str, str], names: Collection[str] = ()) -> list[str]:
    """Values that no message may repeat: of variables that are called secrets, or are named."""
    return [
        value
        for name, value in variables.items()
        if (name in names or is_secret_name(name)) and len(value) >= _SHORTEST_HIDDEN
    ]


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
