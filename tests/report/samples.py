import io

from orchestrator.report.progress import ModelProgress, Progress


class Stream(io.StringIO):
    """A text file in memory with an encoding."""

    def __init__(self, encoding: str = "utf-8", *, tty: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._tty = tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


def a_model(name: str = "judge", **changed: object) -> ModelProgress:
    fields = {
        "state": "ready",
        "in_flight": 3,
        "limit": 4,
        "queued": 5,
        "done": 10,
        "failed": 0,
        "retried": 0,
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        **changed,
    }
    return ModelProgress(name, **fields)  # type: ignore[arg-type]


def a_progress(elapsed_s: float = 1.0, **changed: object) -> Progress:
    fields = {
        "run_dir": "runs/demo",
        "units_total": 1000,
        "units_stored": 100,
        "units_done": 50,
        "units_failed": 2,
        "units_open": 8,
        "units_aside": 0,
        "requests_sent": 60,
        "asks_found": 30,
        "asks_joined": 4,
        "models": (a_model(),),
        "failures": {"timeout": 2},
        **changed,
    }
    return Progress(elapsed_s=elapsed_s, **fields)  # type: ignore[arg-type]
