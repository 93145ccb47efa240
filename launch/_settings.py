"""Settings that several launch kinds share: paths, programs, arguments, GPUs."""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, Protocol

import msgspec
from pydantic import StringConstraints, ValidationInfo

from launch import _environment
from orchestrator.disk.paths import expanded
from orchestrator.errors import LaunchError
from orchestrator.serving import Footprint

VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PROJECT: Final = Path(__file__).parents[1]
_CUDA: Final = "CUDA_VISIBLE_DEVICES"


class Settings(Protocol):
    """Settings of a server that may run on GPUs."""

    @property
    def gpus(self) -> tuple[int, ...] | None:
        """Numbers of the GPUs it may see; None for all."""

    @property
    def extra_args(self) -> tuple[str, ...]:
        """Further arguments."""

    @property
    def env(self) -> dict[str, str]:
        """Further environment variables."""

    @property
    def env_from(self) -> tuple[str, ...]:
        """Names of variables that are inherited."""

    @property
    def model_fields_set(self) -> set[str]:
        """Names of the settings that were given."""


class SplitSettings(Settings, Protocol):
    """Settings of a server that splits a model over GPUs."""

    @property
    def tensor_parallel_size(self) -> int:
        """Number of GPUs that share one model."""

    @property
    def data_parallel_size(self) -> int:
        """Copies of the model in the server."""


def in_folder(path: str, info: ValidationInfo) -> str:
    """A path that may start from the recipe's folder, in full."""
    return str(Path((info.context or {}).get("folder", "."), expanded(path)).absolute())


def program_in_folder(program: str | None, info: ValidationInfo) -> str | None:
    """A program as it is run: a name stays, a path may start from the recipe's folder."""
    return in_folder(program, info) if program and "/" in program else program


def find_program(wanted: str, own: Path | None = None) -> str | None:
    """Find the program to run.

    What lies in the working directory is never taken: entries of PATH that start from there (`.`,
    or an empty one) are passed over.

    Args:
        wanted: Its name or path.
        own: Where a set-up of ours puts it, below the project; None for nowhere.

    Returns:
        Its path; None where there is none.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    absolute = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117
    if (found := shutil.which(wanted, path=absolute)) is not None:
        return found
    place = None if own is None else PROJECT / own
    return str(place) if place is not None and os.access(place, os.X_OK) else None


def found_here(own: Path) -> str:
    """Return a hint where a program is missing and a set-up's lies in the working directory."""
    if not os.access(own, os.X_OK):
        return ""
    return f"; there is one in {str(own)!r} here, which runs only if `command` names it"


def refuse(settings: Settings, arguments: Collection[str], variables: Collection[str]) -> None:
    """Hold further arguments and variables to what is not this program's to set, and no secrets.

    Raises:
        ValueError: With the first that is.
    """
    for argument in settings.extra_args:
        if (name := argument.partition("=")[0]) in arguments:
            raise ValueError(f"extra_args: {name} is set by this program")
    if ours := sorted(settings.env.keys() & set(variables)):
        raise ValueError(f"env: {', '.join(ours)} is set by this program")
    if ours := sorted(set(settings.env_from) & set(variables)):
        raise ValueError(f"env_from: {', '.join(ours)} is set by this program")
    _environment.refuse_secrets(settings.env, settings.extra_args)


def identity(settings: Settings) -> dict[str, str]:
    """Return the settings that may decide the numbers of every kind: arguments and variables."""
    found = {}
    if settings.extra_args:
        found["extra_args"] = json.dumps(settings.extra_args)
    if settings.env:
        found["env"] = json.dumps(settings.env, sort_keys=True)
    return found


def check_adapters(adapters: Collection[str], model: str, setting: str) -> None:
    """Refuse adapters none of which would answer: the model is asked by its own name.

    Raises:
        LaunchError: With what to call them.
    """
    if adapters and model not in adapters:
        raise LaunchError(
            f"model {model!r}: {setting} names {', '.join(sorted(adapters))}, which would "
            "never be used; the adapter to use must have the name of the model"
        )


def arguments(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Arguments and their values for a command line, without those that are None."""
    given = ((name, str(value)) for name, value in settings.items() if value is not None)
    return tuple(chain.from_iterable(given))


def visible(gpus: Iterable[int | str] | None) -> dict[str, str]:
    """Variables that show a server these GPUs, or leave it what it has."""
    if gpus is None:
        return {}
    # NVML and nvidia-smi count as the bus does, CUDA only when told so.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", _CUDA: ",".join(map(str, gpus))}


def names_its_gpus(settings: Settings) -> bool:
    """Return True if the recipe names the GPUs of a server, so that placement leaves it alone."""
    return settings.gpus is not None or _CUDA in settings.env


def held_to(need: Footprint, n_gpus: int | None, fraction: float | None) -> Footprint:
    """Return a need with what the recipe has settled.

    Args:
        need: As its model has it.
        n_gpus: Over which a model is split; None where that is left to placement.
        fraction: Of each GPU's memory; None where that is left to placement.
    """
    if n_gpus is not None:
        need = msgspec.structs.replace(need, splits=(n_gpus,))
    return msgspec.structs.replace(need, fraction=fraction or 0.0)


def split_need(
    settings: SplitSettings, measured: Callable[[], Footprint], fraction: float | None
) -> Footprint | None:
    """Return the GPU memory of a server; None if the recipe chose its GPUs, or copies of it.

    Args:
        settings: Of the server.
        measured: Returns the need of its model.
        fraction: Share of each GPU's memory; None to leave it to placement.

    Raises:
        LaunchError: As `measured`.
    """
    if names_its_gpus(settings) or settings.data_parallel_size > 1:
        return None
    is_split = "tensor_parallel_size" in settings.model_fields_set
    return held_to(measured(), settings.tensor_parallel_size if is_split else None, fraction)


def split_over(settings: Settings, gpus: Sequence[str]) -> dict[str, object]:
    """Return the settings, by name, that split a model over these GPUs."""
    return {"tensor_parallel_size": len(gpus), "env": settings.env | visible(gpus)}
