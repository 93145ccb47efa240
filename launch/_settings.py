"""Paths, programs, arguments and GPUs, as the settings of several launch kinds name them."""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from pydantic import ValidationInfo

from orchestrator.disk.paths import expanded
from orchestrator.errors import LaunchError

PROJECT: Final = Path(__file__).parents[1]
CUDA: Final = "CUDA_VISIBLE_DEVICES"


def in_folder(path: str, info: ValidationInfo) -> str:
    """A path that may start from the recipe's folder, in full."""
    return str(Path((info.context or {}).get("folder", "."), expanded(path)).absolute())


def program_in_folder(program: str, info: ValidationInfo) -> str:
    """A program as it is run: a name stays, a path may start from the recipe's folder."""
    return in_folder(program, info) if "/" in program else program


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


def find_command(wanted: str | None, usual: str, own: Path, how: str) -> str:
    """Return the path of a server's program.

    Args:
        wanted: As the recipe names it; None for the usual one.
        usual: Its name.
        own: Where a set-up of ours puts it, below the project.
        how: Advice where there is none.

    Raises:
        LaunchError: If there is none.
    """
    found = find_program(wanted or usual, None if wanted else own)
    if found is not None:
        return found
    here = f"; there is one in {str(own)!r} here, which runs only if `command` names it"
    raise LaunchError(
        f"there is no command {wanted or usual!r}; {how}{here if os.access(own, os.X_OK) else ''}"
    )


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
