"""Weights & Biases, online or offline."""

import importlib
from collections.abc import Mapping
from typing import Any

from orchestrator.trackers.base import Began, State, Tracker


class WandbTracker(Tracker):
    """A run of wandb. Its capture of stdout is off: what a model wrote stays here."""

    def begin(self, began: Began) -> None:
        """Open a run and log the parameters."""
        wandb: Any = importlib.import_module("wandb")
        self._run: Any = wandb.init(
            project=began.project,
            name=began.name,
            dir=str(began.folder),
            config=dict(began.parameters),
            mode=began.mode,
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                silent=True,
                x_disable_stats=True,
            ),
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        self._run.log(dict(metrics), step=step)

    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results as the run's summary, and close it."""
        self._run.summary.update({**metrics, "state": state})
        self._run.finish(exit_code=1 if state == "failed" else 0)
