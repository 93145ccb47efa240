"""A run as it was at one moment, each part of it made when first asked for."""

from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.runner import api
from orchestrator.view import overview
from orchestrator.view.items import Items, build
from orchestrator.view.searching import Texts, write_texts


class Snapshot:
    """One version of a run.

    Attributes:
        version: Of its rows.
        result: The run, its frames files that no longer change.
        folder: For what is made from it.
    """

    def __init__(self, version: str, result: api.Result, folder: Path) -> None:
        self.version = version
        self.result = result
        self.folder = folder

    @cached_property
    def items(self) -> Items:
        """The items with what the methods say of each."""
        return build(self.result.frames, self.result.settings)

    @cached_property
    def texts(self) -> Texts:
        """The texts of each item, to be searched."""
        return write_texts(self.result.frames, self.items.keys, self.folder / "texts.arrow")

    @cached_property
    def overview(self) -> dict[str, Any]:
        """What the report says, as plain data."""
        try:
            return overview.overview(self.result)
        finally:
            # It reads whole frames, which need not stay in memory.
            self.result.frames.forget()
