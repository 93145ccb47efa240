"""A folder in the layout of a Hugging Face dataset, by its path."""

from pathlib import Path
from typing import Final

from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import joined_rows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._hub_folder import FolderConfig, Split, configs_of
from orchestrator.disk.paths import answers, expanded
from orchestrator.plugin import Dataset, DatasetError, DatasetKind, FolderSettings

_TEST: Final = "test"
_POINTER: Final = b"version https://git-lfs.github.com/spec/"


class Config(FolderSettings):
    """Settings of `folder`."""

    config: str | None = Field(
        None,
        min_length=1,
        description="Config of the dataset. Default: its only one, the one that the README marks, "
        "or `default`.",
    )
    split: str | None = Field(
        None,
        min_length=1,
        description="Split, such as train, validation or test. Default: test, or the only one.",
    )
    fields: FieldNames = Field(
        FieldNames(), description="Columns of the prompt, the key, and so on."
    )


class FolderKind(DatasetKind[Config]):
    """A folder with data files and perhaps a README.md, as the Hugging Face hub has them."""

    def open(self, base: Path) -> Dataset:
        """Open the files of the split and check every row.

        Raises:
            DatasetError: If there is no such config or split, or with every row that is not right.
        """
        folder, shown = base / expanded(self.config.path), self.config.path
        if not answers(folder, Path.is_dir):
            raise DatasetError(f"{shown}: there is no such folder")
        config = _chosen(configs_of(folder, shown), self.config.config, shown)
        name, split = _split(config, self.config.split, shown)
        for file in split.files:
            with file.open("rb") as opened:
                if opened.read(len(_POINTER)) == _POINTER:
                    raise DatasetError(f"{file}: only a pointer; fetch the file with: git lfs pull")
        files = list(split.files)
        rows = joined_rows(files, f"{shown} ({name})" if len(files) > 1 else str(files[0]))
        if split.n_rows is not None and split.n_rows != len(rows):
            raise DatasetError(
                f"{shown}: split {name!r} has {len(rows):,} rows, but README.md gives "
                f"num_examples: {split.n_rows:,}; complete the files or correct the README"
            )
        return from_rows(rows, self.config.fields)


def _chosen(configs: dict[str, FolderConfig], wanted: str | None, shown: str) -> FolderConfig:
    if wanted is not None and wanted in configs:
        return configs[wanted]
    if wanted is None:
        marked = [one for one in configs.values() if one.is_default]
        if len(configs) == 1 or marked:
            return marked[0] if marked else next(iter(configs.values()))
        if "default" in configs:
            return configs["default"]
    what = "set 'config'" if wanted is None else f"no config {wanted!r}"
    raise DatasetError(f"{shown}: {what}; available: {', '.join(configs)}")


def _split(config: FolderConfig, wanted: str | None, shown: str) -> tuple[str, Split]:
    splits = config.splits
    name = wanted or (_TEST if _TEST in splits or len(splits) > 1 else next(iter(splits)))
    if name not in splits:
        what = "set 'split'" if wanted is None else f"no split {wanted!r}"
        raise DatasetError(f"{shown}: {what}; available: {', '.join(splits)}")
    return name, splits[name]
