"""MLflow: runs of an experiment in any store that its tracking URI names."""

import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.trackers.base import Began, State, Tracker

# MLflow refuses longer values of parameters, and more of them in a call.
_MAX_VALUE: Final = 6000
_MAX_BATCH: Final = 100
_STATUS: Final[dict[State, str]] = {
    "complete": "FINISHED", "partial": "FINISHED", "interrupted": "KILLED", "failed": "FAILED",
}  # fmt: skip


class MlflowTracker(Tracker):
    """A run of MLflow, by its client: no global state of the process changes."""

    def begin(self, began: Began) -> None:
        """Open a run and log the parameters."""
        os.environ.setdefault("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
        self._entities: Any = importlib.import_module("mlflow.entities")
        client = importlib.import_module("mlflow").MlflowClient(tracking_uri=began.uri)
        # It writes to stderr, which belongs to the display.
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self._client: Any = client
        experiment = client.get_experiment_by_name(began.project)
        place = experiment.experiment_id if experiment else client.create_experiment(began.project)
        self._run: str = client.create_run(place, run_name=began.name).info.run_id
        client.set_tag(self._run, "orchestrator.run", str(began.folder))
        parameters = [
            self._entities.Param(name, str(value)[:_MAX_VALUE])
            for name, value in began.parameters.items()
        ]
        for at in range(0, len(parameters), _MAX_BATCH):
            client.log_batch(self._run, params=parameters[at : at + _MAX_BATCH])

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        for name, value in metrics.items():
            self._client.log_metric(self._run, name, value, step=step)

    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results and close the run."""
        self.log(metrics, 0)
        self._client.set_tag(self._run, "orchestrator.state", state)
        self._client.set_terminated(self._run, _STATUS[state])
