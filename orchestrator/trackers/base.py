"""The interface of trackers. All of it is called in one thread, where calls may block and raise."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

State = Literal["complete", "partial", "interrupted", "failed"]
Parameters = Mapping[str, str | int | float | bool]


class Began(msgspec.Struct, frozen=True):
    """A call of a run as it begins.

    Attributes:
        project: Project or experiment to log to.
        name: Of the recipe.
        folder: The run directory, where a tracker may write files of its own.
        parameters: Settings of the recipe by dotted name; no secrets.
        uri: Address of the tracker's server or store; None for its own default.
        mode: "online" or "offline"; None for its own default.
    """

    project: str
    name: str
    folder: Path
    parameters: Parameters
    uri: str | None = None
    mode: str | None = None


class Tracker(ABC):
    """A tracker of experiments, for one call of a run."""

    @abstractmethod
    def begin(self, began: Began) -> None:
        """Open a run of the tracker and log the parameters."""

    @abstractmethod
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics; steps grow."""

    @abstractmethod
    def end(self, metrics: Mapping[str, float], state: State) -> None:
        """Log the results and close the run."""
