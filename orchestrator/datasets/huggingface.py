"""Any dataset of the Hugging Face hub: a split as the hub offers it in Parquet, or named files.

A split is fetched as the Parquet files that the hub makes of every public dataset
(https://huggingface.co/docs/dataset-viewer/parquet); these follow the dataset, so what was fetched
first is kept and held to. `files` with a commit as `revision` are fixed by their address.
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import Field, model_validator

from orchestrator.dataset import data_folder
from orchestrator.dataset.fields import Columns, FieldNames
from orchestrator.dataset.files import joined_rows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import converted, hub_file, listing, located, one_of
from orchestrator.plugin import About, Dataset, DatasetError, DatasetKind, Settings

KIND: Final = "huggingface"
_REPOSITORY: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$"
_PART: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
_Splits = dict[str, dict[str, list[Any]]]


class Config(Settings):
    """Settings of `huggingface`."""

    repository: str = Field(
        description="Name of the dataset, such as openai/gsm8k.", pattern=_REPOSITORY
    )
    config: str | None = Field(
        None,
        pattern=_PART,
        description="Config of the dataset. Default: its only one, or `default`.",
    )
    split: str = Field("test", pattern=_PART, description="Such as train, validation or test.")
    files: tuple[str, ...] = Field(
        (),
        description="Paths in the repository instead of a split: JSON Lines, JSON, CSV or Parquet.",
    )
    revision: str = Field("main", min_length=1, description="With `files`: commit, branch or tag.")
    fields: Columns = FieldNames()

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if self.revision != "main" and not self.files:
            raise ValueError("'revision' goes with 'files': the hub's Parquet is of the newest one")
        bad = [name for name in self.files if name.startswith("/") or ".." in name.split("/")]
        if bad:
            raise ValueError(f"'files' are paths in the repository, not {bad[0]!r}")
        return self


class Kind(DatasetKind[Config]):
    """A dataset of the Hugging Face hub."""

    about = About(
        licence="see the page of the dataset",
        size="depends on the dataset",
        source="https://huggingface.co/datasets",
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The rows as items; fetched at first use.

        Raises:
            DatasetError: If the files can't be had, with where to put them, or rows are not right.
        """
        repository, revision = self.config.repository, self.config.revision
        folder = f"{_folder(self.config)}/{revision.replace('/', '--')}"
        paths = [
            located(KIND, hub_file(repository, path, revision=revision, name=f"{folder}/{path}"))
            for path in self.config.files
        ]
        paths = paths or _split(self.config)
        return from_rows(joined_rows(paths, f"{repository} ({paths[0]})"), self.config.fields)


def _folder(config: Config) -> str:
    return config.repository.replace("/", "--")


def _split(config: Config) -> list[Path]:
    """The Parquet files of a split, the user's own first."""
    own = data_folder()
    if own is not None:
        folder = own / KIND / _folder(config) / (config.config or "default") / config.split
        if found := sorted(folder.glob("*.parquet")):
            return found
    try:
        listed = located(KIND, listing(config.repository, f"{_folder(config)}/parquet.json"))
    except DatasetError as error:
        place = f"{KIND}/{_folder(config)}/{config.config or 'default'}/{config.split}"
        raise DatasetError(
            f"{error}; or put the Parquet files of the split into that folder as "
            f"{place}/0000.parquet, 0001.parquet, …"
        ) from error
    try:
        splits = msgspec.json.decode(listed.read_bytes(), type=_Splits)
    except msgspec.MsgspecError as error:
        raise DatasetError(f"{listed}: not a list of Parquet files: {error}") from error
    name = one_of(splits, config.config, "config", config.repository, ("default",))
    if not re.fullmatch(_PART, name):
        # It becomes the name of a folder.
        raise DatasetError(f"{config.repository}: the hub lists a config with the name {name!r}")
    filled = {one: files for one, files in splits[name].items() if files}
    one_of(filled, config.split, "split", f"{config.repository} ({name})")
    split, place = (config.repository, name, config.split), f"{_folder(config)}/{name}"
    names = [f"{place}/{config.split}/{at:04d}.parquet" for at in range(len(filled[config.split]))]
    return [located(KIND, converted(*split, at, file)) for at, file in enumerate(names)]
