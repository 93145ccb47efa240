"""Trackio, which keeps runs in a local database."""

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.trackers.base import Began, State, Tracker


class TrackioTracker(Tracker):
    """A run of trackio."""

    def begin(self, began: Began) -> None:
        """Open a run and log the parameters."""
        trackio: Any = importlib.import_module("trackio")
        with _silent():
            self._run: Any = trackio.init(
                project=began.project,
                name=began.name,
                config=dict(began.parameters),
                embed=False,
            )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        self._run.log(dict(metrics), step=step)

    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results and close the run."""
        self._run.log({**metrics, "state": state})
        with _silent():
            self._run.finish()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what trackio prints from stdout, which belongs to the results."""
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        yield
