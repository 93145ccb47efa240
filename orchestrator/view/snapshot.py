"""A run as it was at one moment, each part of it made when first asked for."""

import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.report.text import safe_line
from orchestrator.runner import api
from orchestrator.runner.results.replayed import Replay
from orchestrator.view import overview
from orchestrator.view.items import Items, build
from orchestrator.view.searching import Texts, write_texts
from orchestrator.view.traced import traced


class Snapshot:
    """One version of a run.

    Attributes:
        version: Of its rows.
        result: The run, its frames files that no longer change.
        folder: For what is made from it.
    """

    def __init__(
        self, version: str, result: api.Result, folder: Path, *, allow_code: bool = False
    ) -> None:
        self.version = version
        self._allow_code = allow_code
        self._replaying = threading.Lock()
        self._searched = False
        self.result = result
        self.folder = folder

    @cached_property
    def items(self) -> Items:
        """The items with what the methods say of each."""
        return build(self.result.frames, self.result.settings, allow_code=self._allow_code)

    @cached_property
    def texts(self) -> Texts:
        """The texts of each item, to be searched."""
        return write_texts(self.result.frames, self.items.keys, self.folder / "texts.arrow")

    def prepare_search(self) -> None:
        """Gather the texts before the first letter is typed, in a thread of its own."""
        if not self._searched:
            self._searched = True
            threading.Thread(target=lambda: self.texts, daemon=True).start()

    @cached_property
    def overview(self) -> dict[str, object]:
        """The content of the report, as plain data."""
        return self._of_frames(overview.overview)

    @cached_property
    def drawings(self) -> dict[str, object]:
        """The charts of the report, which take longer than all it says."""
        return self._of_frames(overview.drawings)

    def _of_frames(self, made: Callable[[api.Result], dict[str, Any]]) -> dict[str, object]:
        try:
            return made(self.result)
        finally:
            # It reads whole frames, which need not stay in memory.
            self.result.frames.forget()

    def trace(self, index: int) -> dict[str, Any]:
        """Return the requests of an item, or the reason why they can't be shown.

        Raises:
            OrchestratorError: If the store can't be read.
        """
        try:
            replay = self._replay
        except OrchestratorError as error:
            return {"units": [], "asks": [], "why": safe_line(str(error))}
        # A plan keeps the last items that it read, and is used by one thread at a time.
        with self._replaying:
            return traced(replay.units(index), replay.speller)

    @cached_property
    def _replay(self) -> Replay:
        result = self.result
        return Replay(result.path, result.frames, allow_code=self._allow_code)
