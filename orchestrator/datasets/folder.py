"""A folder in the layout of a Hugging Face dataset, by its path."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml
from pydantic import Field

from orchestrator.dataset.fields import Columns, FieldNames
from orchestrator.dataset.files import joined_rows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import one_of
from orchestrator.disk.paths import answers, expanded, suffix_of
from orchestrator.plugin import Dataset, DatasetError, DatasetKind, FolderSettings

# Data files of a folder in the layout of a Hugging Face dataset repository.
#
# Source: the hub's documentation, "Structure your repository" and "Manual configuration": `configs`
# in the front matter of README.md, else splits by the names of files and folders.


SUFFIXES: Final = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
_README: Final = "README.md"
_MOST_README_BYTES: Final = 4 << 20
_MOST_FILES: Final = 100_000
_DEFAULT: Final = "default"
# Splits by the keywords of the hub that stand for them.
_KEYWORDS: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
# `data/NAME-00000-of-00003.parquet`, in which any name is a split.
_SHARD: Final = re.compile(
    r"(?P<split>\w+)-(?P<number>[0-9]{5})-of-(?P<n>[0-9]{5})(?:-.*)?\.[\w.]+"
)
# Of `save_to_disk`, and of the hub itself; none of them holds rows.
_NO_DATA: Final = frozenset(
    {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
)


Splits = dict[str, tuple[list[Path], int | None]]
"""The splits of a config by name: the files of each, and how many rows the README says they have;
None where it does not."""


def configs_of(folder: Path, shown: str) -> tuple[dict[str, Splits], str | None]:
    """Return the configs of a folder by name, and the name of the one that its README marks.

    Where it names none, there is one called `default`.

    Raises:
        DatasetError: If there are no data files, or the README is malformed.
    """
    card = _card(folder, shown)
    counts = _counts(card.get("dataset_info"))
    listed = card.get("configs")
    if not isinstance(listed, list) or not listed:
        by_name = _splits_by_name(folder, _files(folder, "**/*"), shown)
        told = next(iter(counts.values())) if len(counts) == 1 else {}
        return {_DEFAULT: {name: (files, told.get(name)) for name, files in by_name.items()}}, None
    found, marked = dict[str, Splits](), None
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("config_name"), str):
            raise DatasetError(f"{shown}/{_README}: each of `configs` needs a config_name")
        name: str = entry["config_name"]
        told = counts.get(name, {})
        splits = _splits_of(folder, entry, shown).items()
        found[name] = {split: (files, told.get(split)) for split, files in splits}
        if entry.get("default") is True:
            marked = marked or name
    return found, marked


def _card(folder: Path, shown: str) -> dict[str, Any]:
    """The front matter of the README; {} where there is none."""
    file = folder / _README
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_README_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DatasetError(f"{shown}/{_README}: {error.strerror or error}") from error
    match = re.match(r"---\s*\n(.*?)\n---", content.decode("utf-8", "replace"), re.DOTALL)
    if match is None:
        return {}
    try:
        card = yaml.safe_load(match.group(1))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        line = str(error).partition("\n")[0]
        raise DatasetError(f"{shown}/{_README}: its front matter is not YAML: {line}") from error
    return card if isinstance(card, dict) else {}


def _counts(info: object) -> dict[str, dict[str, int]]:
    """Rows by config and split, as `dataset_info` of the README gives them."""
    found: dict[str, dict[str, int]] = {}
    for entry in info if isinstance(info, list) else [info]:
        if isinstance(entry, dict):
            splits = entry.get("splits")
            found[str(entry.get("config_name", _DEFAULT))] = {
                str(one.get("name")): one["num_examples"]
                for one in (splits if isinstance(splits, list) else ())
                if isinstance(one, dict) and type(one.get("num_examples")) is int
            }
    return found


def _splits_of(folder: Path, entry: Mapping[str, Any], shown: str) -> dict[str, list[Path]]:
    within = entry.get("data_dir")
    base = PurePosixPath(_inside(within, shown) if isinstance(within, str) else "")
    wanted = entry.get("data_files")
    if wanted is None:
        return _splits_by_name(folder, _files(folder, str(base / "**/*")), shown)
    if isinstance(wanted, dict):
        wanted = [{"split": split, "path": path} for split, path in wanted.items()]
    if isinstance(wanted, str) or _are_texts(wanted):
        wanted = [{"split": "train", "path": wanted}]
    found: dict[str, list[Path]] = {}
    for one in wanted if isinstance(wanted, list) else ():
        path = one.get("path") if isinstance(one, dict) else None
        patterns: Any = [path] if isinstance(path, str) else path
        if not _are_texts(patterns):
            raise DatasetError(
                f"{shown}/{_README}: each of `data_files` needs a split and a path, got {one!r:.80}"
            )
        files: list[Path] = []
        for pattern in patterns:
            matched = _files(folder, str(base / _inside(pattern, shown)))
            if not matched:
                raise DatasetError(f"{shown}: no file matches {pattern!r}, which {_README} names")
            files += matched
        found.setdefault(str(one.get("split", "train")), []).extend(files)
    if not found:
        raise DatasetError(f"{shown}/{_README}: `data_files` of a config names no files")
    return {split: list(dict.fromkeys(files)) for split, files in found.items()}


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _inside(pattern: str, shown: str) -> str:
    """A pattern of paths in the folder."""
    if "://" in pattern or pattern.startswith("/") or ".." in PurePosixPath(pattern).parts:
        raise DatasetError(f"{shown}/{_README}: {pattern!r} is outside of the folder")
    return pattern


def _files(folder: Path, pattern: str) -> list[Path]:
    """Data files that match, sorted by path; neither hidden ones nor those of other kinds."""
    found = []
    try:
        for file in folder.glob(pattern):
            parts = file.relative_to(folder).parts
            if (
                suffix_of(file.name) in SUFFIXES
                and file.name not in _NO_DATA
                and not any(part.startswith((".", "__")) for part in parts)
                and file.is_file()
            ):
                found.append(file)
            if len(found) > _MOST_FILES:
                break
    except (ValueError, NotImplementedError) as error:
        raise DatasetError(f"invalid pattern {pattern!r}: {error}") from error
    return sorted(found)


def _splits_by_name(folder: Path, files: Iterable[Path], shown: str) -> dict[str, list[Path]]:
    """Splits by the names of files and folders; all files are `train` where no name tells."""
    files = list(files)
    if not files:
        arrow = next(folder.glob("**/*.arrow"), None)
        hint = (
            "; it was written by `save_to_disk`: write its splits with `to_parquet` instead"
            if arrow is not None
            else f" ({' '.join(SUFFIXES)})"
        )
        raise DatasetError(f"{shown}: no data files in this folder{hint}")
    suffixes = [suffix_of(file.name) for file in files]
    # As the hub does: of several kinds of files those that there are most of.
    most = max(dict.fromkeys(suffixes), key=suffixes.count)
    files = [file for file in files if suffix_of(file.name) == most]
    found: dict[str, list[Path]] = {}
    for file in files:
        split = _split(file.relative_to(folder))
        if split:
            found.setdefault(split, []).append(file)
    return found or {"train": files}


def _split(path: Path) -> str:
    """The split that a path names; "" for none."""
    shard = _SHARD.fullmatch(path.name)
    if shard is not None and path.parts[:-1] == ("data",):
        return _KEYWORDS.get(shard["split"].lower(), shard["split"])
    for part in (path.stem, *reversed(path.parts[:-1])):
        for word in re.split(r"[^A-Za-z0-9]+", part):
            if word.lower() in _KEYWORDS:
                return _KEYWORDS[word.lower()]
    return ""


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
    fields: Columns = FieldNames()


class Kind(DatasetKind[Config]):
    """A folder with data files and perhaps a README.md, as the Hugging Face hub has them."""

    def open(self, base: Path) -> Dataset:
        """Open the files of the split and check every row.

        Raises:
            DatasetError: If there is no such config or split, or with every row that is not right.
        """
        folder, shown = base / expanded(self.config.path), self.config.path
        if not answers(folder, Path.is_dir):
            raise DatasetError(f"{shown}: there is no such folder")
        configs, marked = configs_of(folder, shown)
        usual = (_DEFAULT,) if marked is None else (marked,)
        splits = configs[one_of(configs, self.config.config, "config", shown, usual)]
        name = one_of(splits, self.config.split, "split", shown, ("test",))
        files, n_rows = splits[name]
        rows = joined_rows(files, f"{shown} ({name})" if len(files) > 1 else str(files[0]))
        if n_rows is not None and n_rows != len(rows):
            raise DatasetError(
                f"{shown}: split {name!r} has {len(rows):,} rows, but README.md gives "
                f"num_examples: {n_rows:,}; complete the files or correct the README"
            )
        named = {file: found for file in files if (found := _SHARD.fullmatch(file.name))}
        for file, shard in named.items():
            numbers = {int(one["number"]) for one in named.values() if one["n"] == shard["n"]}
            if lost := set(range(int(shard["n"]))) - numbers:
                there = f"{shown}: split {name!r}: {file.name} is there, but no shard"
                raise DatasetError(f"{there} {min(lost):05d}; complete the files")
        return from_rows(rows, self.config.fields)
