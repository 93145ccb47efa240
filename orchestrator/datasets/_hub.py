"""Files of the Hugging Face hub, as plain downloads: no `datasets` library, no code of a dataset.

Why not the library: it would bring pyarrow, pandas and a dozen others to read files that polars
reads, and the hub offers every public dataset as Parquet, whatever it was uploaded as.
"""

from urllib.parse import quote

from orchestrator.plugin import File


def hub_file(repository: str, path: str, *, revision: str = "main", name: str = "") -> File:
    """A file of a dataset's repository.

    Args:
        repository: Such as "wmt/wmt19".
        path: In the repository.
        revision: Commit, branch or tag.
        name: Under the kind's folder; the file's own where left out.
    """
    place = f"{quote(repository)}/resolve/{quote(revision, safe='')}/{quote(path)}"
    return File(name=name or path.rpartition("/")[2], path=f"datasets/{place}")


def listing(repository: str, name: str) -> File:
    """The hub's list of Parquet files of a dataset: {config: {split: [address, …]}}."""
    return File(name=name, path=f"api/datasets/{quote(repository)}/parquet")


def converted(repository: str, config: str, split: str, number: int, name: str) -> File:
    """One of the Parquet files that the hub has made of a split."""
    place = "/".join(quote(part, safe="") for part in (config, split, f"{number}.parquet"))
    return File(name=name, path=f"api/datasets/{quote(repository)}/parquet/{place}")
