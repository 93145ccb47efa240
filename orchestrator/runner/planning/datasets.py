"""Datasets of a recipe: one is opened by its kind, and all kinds are listed."""

from pathlib import Path

from orchestrator import contracts, plugins
from orchestrator.dataset import About, Dataset
from orchestrator.dataset.files import is_here
from orchestrator.errors import PluginError
from orchestrator.recipe.schema import PluginRef


def open_dataset(dataset: PluginRef, base: Path = Path(), *, allow_code: bool = False) -> Dataset:
    """Open the dataset of a recipe and check every item.

    Args:
        dataset: Kind and settings.
        base: Folder that a relative `path` starts from.
        allow_code: Import a kind from outside this project.

    Raises:
        DatasetError: If it is missing or malformed, with everything that is wrong.
        PluginError: If there is no such kind, or one that gives no dataset.
    """
    kind = contracts.load(plugins.DATASETS, dataset.kind, allow_code=allow_code)
    opened: object = kind(dataset.config).open(base)
    if not isinstance(opened, Dataset):
        place = contracts.place_of(kind)
        raise PluginError(f"{place}: open(base) returned {type(opened).__name__}, not a Dataset")
    return opened


def kinds() -> dict[str, str]:
    """Return a one-line description of each kind."""
    return {
        kind: (plugins.load(plugins.DATASETS, kind).__doc__ or "").strip().partition("\n")[0]
        for kind in plugins.kinds(plugins.DATASETS)
    }


def listing() -> list[tuple[str, str]]:
    """Every kind with a line; below a benchmark its size, whether it is here, and its licence."""
    rows: list[tuple[str, str]] = []
    for kind, line in kinds().items():
        rows.append((kind, line))
        about = contracts.load(plugins.DATASETS, kind).about
        if about is not None:
            rows.append(("", f"licence: {about.licence}"))
            rows.append(("", f"size: {about.size}; {_presence(kind, about)}"))
    return rows


def _presence(kind: str, about: About) -> str:
    """Describe whether the files of a benchmark are on this machine."""
    n_here = sum(is_here(kind, file) for file in about.files)
    if n_here == len(about.files):
        return "here" if n_here else "fetched at first use"
    return f"{n_here} of {len(about.files)} files here" if n_here else "fetched at first use"
