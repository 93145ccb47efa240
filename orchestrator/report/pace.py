"""The pace of a run: rates over the last seconds, and the time left that follows from them.

Models work side by side, and a run ends when the last of them has ended. So the time left is that
of the slowest: the units that wait for a model, at the pace at which it has ended such units.
"""

from collections import deque
from typing import Final

import msgspec

from orchestrator.report.progress import ModelProgress, Progress

# Rates follow the run within this many seconds; the end is judged by a longer stretch, because the
# pace of single items differs.
_RATE_SPAN_S: Final = 15.0
_ETA_SPAN_S: Final = 60.0
# Two snapshots nearer than this give no rate worth showing.
_MIN_SPAN_S: Final = 0.5
_MAX_SNAPSHOTS: Final = 600
# Units before which the end is not guessed: the first ones wait for servers to start.
_MIN_DONE: Final = 5


class Rates(msgspec.Struct, frozen=True):
    """Requests that ended and tokens, a second; None while unknown."""

    requests: float | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None


_UNKNOWN: Final = Rates()


class Pace:
    """Keeps what is needed of the last minute of a run."""

    def __init__(self) -> None:
        self._snapshots: deque[Progress] = deque(maxlen=_MAX_SNAPSHOTS)
        # When the first units of a model had ended, and how many.
        self._first: dict[str, tuple[float, int]] = {}

    def add(self, progress: Progress) -> None:
        """Take the run's state at a later moment."""
        self._snapshots.append(progress)
        for model in progress.models:
            if model.units_done and model.name not in self._first:
                self._first[model.name] = progress.elapsed_s, model.units_done
        while self._snapshots[-1].elapsed_s - self._snapshots[0].elapsed_s > _ETA_SPAN_S:
            self._snapshots.popleft()

    def total(self) -> Rates:
        """Of all models together."""
        return self._rates(None)

    def model(self, name: str) -> Rates:
        """Of one model."""
        return self._rates(name)

    def eta_s(self) -> float | None:
        """Seconds left of the slowest model; None while that is unknown.

        The pace is that of the last minute, or of the whole call for a model that has ended few
        units in it.
        """
        if not self._snapshots:
            return None
        now = self._snapshots[-1]
        if now.units_left <= 0:
            return 0.0
        waited_for = [model for model in now.models if model.units_left > 0]
        if not waited_for:
            # Seconds left by the number of units alone, where nobody says what they wait for
            left = now.units_left
            before = self._before(_ETA_SPAN_S)
            if before is None or now.units_done < _MIN_DONE:
                return None
            done = now.units_done - before.units_done
            if done <= 0:
                return now.eta_s
            return left * (now.elapsed_s - before.elapsed_s) / done
        found = [self._eta_of(model, now.elapsed_s) for model in waited_for]
        known = [eta for eta in found if eta is not None]
        return max(known) if len(known) == len(found) else None

    def _eta_of(self, model: ModelProgress, now_s: float) -> float | None:
        """Seconds until a model has ended its units."""
        if model.units_done < _MIN_DONE:
            return None
        before = self._before(_ETA_SPAN_S)
        if before is not None:
            then = next((one for one in before.models if one.name == model.name), None)
            done = model.units_done - (0 if then is None else then.units_done)
            if done >= _MIN_DONE:
                return model.units_left * (now_s - before.elapsed_s) / done
        since_s, first = self._first.get(model.name, (0.0, 0))
        done = model.units_done - first
        return model.units_left * (now_s - since_s) / done if done > 0 else None

    def _rates(self, name: str | None) -> Rates:
        before = self._before(_RATE_SPAN_S)
        if before is None:
            return _UNKNOWN
        now = self._snapshots[-1]
        span = now.elapsed_s - before.elapsed_s
        old, new = _sums(before, name), _sums(now, name)
        return Rates(*((b - a) / span for a, b in zip(old, new, strict=True)))

    def _before(self, span_s: float) -> Progress | None:
        """The oldest snapshot within the span before the last one."""
        if not self._snapshots:
            return None
        end = self._snapshots[-1].elapsed_s
        for snapshot in self._snapshots:
            if end - snapshot.elapsed_s <= span_s:
                return snapshot if end - snapshot.elapsed_s >= _MIN_SPAN_S else None
        return None


def _sums(progress: Progress, name: str | None) -> tuple[int, int, int]:
    models: list[ModelProgress] = [m for m in progress.models if name is None or m.name == name]
    return (
        sum(model.done + model.failed for model in models),
        sum(model.prompt_tokens for model in models),
        sum(model.completion_tokens for model in models),
    )
