"""Trackers of experiments (wandb, mlflow, trackio) behind one interface, by the `kind` of `log_to`.

All of it is called in one thread, where calls may block and raise. The libraries are optional and
are imported when a run with that tracker begins.
"""

import contextlib
import importlib
import io
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from orchestrator.recipe.settings import LogTo

State = Literal["complete", "partial", "interrupted", "failed"]
Parameters = Mapping[str, str | int | float | bool]


class Tracker(ABC):
    """A tracker of experiments, for one call of a run."""

    @abstractmethod
    def begin(self, log_to: LogTo, name: str, folder: Path, parameters: Parameters) -> None:
        """Open a run of the tracker and log the parameters.

        Args:
            log_to: The tracker's settings.
            name: Of the recipe.
            folder: The run directory, where a tracker may write files of its own.
            parameters: Settings of the recipe by dotted name; no secrets.
        """

    @abstractmethod
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics; steps grow."""

    @abstractmethod
    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results and close the run."""


# MLflow refuses longer values of parameters, and more of them in a call.
_MAX_VALUE: Final = 6000
_MAX_BATCH: Final = 100
_STATUS: Final[dict[State, str]] = {
    "complete": "FINISHED", "partial": "FINISHED", "interrupted": "KILLED", "failed": "FAILED",
}  # fmt: skip


class MlflowTracker(Tracker):
    """A run of MLflow, by its client: no global state of the process changes."""

    def begin(self, log_to: LogTo, name: str, folder: Path, parameters: Parameters) -> None:
        """Open a run and log the parameters."""
        os.environ.setdefault("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
        self._entities: Any = importlib.import_module("mlflow.entities")
        client = importlib.import_module("mlflow").MlflowClient()
        # It writes to stderr, which belongs to the display.
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self._client: Any = client
        project = log_to.project or name
        experiment = client.get_experiment_by_name(project)
        place = experiment.experiment_id if experiment else client.create_experiment(project)
        self._run: str = client.create_run(place, run_name=name).info.run_id
        client.set_tag(self._run, "orchestrator.run", str(folder))
        listed = [
            self._entities.Param(name, str(value)[:_MAX_VALUE])
            for name, value in parameters.items()
        ]
        for at in range(0, len(listed), _MAX_BATCH):
            client.log_batch(self._run, params=listed[at : at + _MAX_BATCH])

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        for name, value in metrics.items():
            self._client.log_metric(self._run, name, value, step=step)

    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results and close the run."""
        self.log(metrics, 0)
        self._client.set_tag(self._run, "orchestrator.state", state)
        self._client.set_terminated(self._run, _STATUS[state])


class WandbTracker(Tracker):
    """A run of wandb. Its capture of stdout is off: what a model wrote stays here."""

    def begin(self, log_to: LogTo, name: str, folder: Path, parameters: Parameters) -> None:
        """Open a run and log the parameters."""
        wandb: Any = importlib.import_module("wandb")
        self._run: Any = wandb.init(
            project=log_to.project or name,
            name=name,
            dir=str(folder),
            config=dict(parameters),
            mode=log_to.mode,
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


class TrackioTracker(WandbTracker):
    """A run of trackio, which has wandb's calls. What it prints is kept from stdout."""

    def begin(self, log_to: LogTo, name: str, folder: Path, parameters: Parameters) -> None:  # noqa: ARG002 (it has a place of its own)
        """Open a run and log the parameters."""
        trackio: Any = importlib.import_module("trackio")
        with contextlib.redirect_stdout(io.StringIO()):
            self._run = trackio.init(
                project=log_to.project or name, name=name, config=dict(parameters), embed=False
            )

    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results and close the run."""
        self._run.log({**metrics, "state": state})
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()


TRACKERS: Final[dict[str, type[Tracker]]] = {
    "mlflow": MlflowTracker, "trackio": TrackioTracker, "wandb": WandbTracker,
}  # fmt: skip
