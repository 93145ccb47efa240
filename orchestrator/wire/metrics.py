"""Load figures in Prometheus text."""

import re
from typing import Final

import msgspec

# What servers call the same thing; each by its own prefix.
_FIELDS: Final = {
    b"num_requests_running": "running",
    b"num_requests_waiting": "waiting",
    b"num_running_reqs": "running",
    b"num_queue_reqs": "waiting",
    b"token_usage": "kv_cache",
    b"batch_current_size": "running",
    b"queue_size": "waiting",
    b"kv_cache_usage_perc": "kv_cache",
    b"prefix_cache_queries_total": "prefix_queries",
    b"prefix_cache_hits_total": "prefix_hits",
}
_SERIES: Final = re.compile(
    rb"^(?:orchestrator:|vllm:|sglang:|tgi_)("
    + b"|".join(_FIELDS)
    + rb")(?:\{([^}\n]*)\})?[ \t]+([0-9.eE+-]+)",
    re.MULTILINE,
)
_MOST: Final = 2.0**53
_MODEL: Final = re.compile(rb'(?:^|,)\s*model_name="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load figures as the server publishes them; None where it does not.

    Attributes:
        running: Requests that it computes.
        waiting: Requests that wait for it.
        kv_cache: Share of its memory for keys and values that is taken, 0 to 1.
        prefix_queries: Prompt tokens that were looked up in its prefix cache since it started.
        prefix_hits: Those of them that were found.
        n_extra: Prompts that this connection has under way beyond one for each of its requests.
            Servers count prompts as requests.
    """

    running: int | None = None
    waiting: int | None = None
    kv_cache: float | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    n_extra: int = 0


def load_figures(text: bytes, model: str) -> ServerLoad | None:
    """Figures of `model`, or of the whole server where it does not tell models apart.

    Several engines of one model are added up; of how full their caches are, the fullest counts.
    None where there is no such figure.
    """
    mine: dict[str, float] = {}
    unnamed: dict[str, float] = {}
    for name, found, number in _SERIES.findall(text):
        value = figure(number)
        if value is None:
            continue
        labelled = _MODEL.search(found)
        if labelled is None:
            _add(unnamed, _FIELDS[name], value)
        elif _ESCAPED.sub(rb"\1", labelled[1]) == model.encode():
            _add(mine, _FIELDS[name], value)
    figures = mine or unnamed
    if not figures:
        return None
    kv_cache = figures.pop("kv_cache", None)
    counts = {field: int(value) for field, value in figures.items()}
    return ServerLoad(kv_cache=kv_cache, **counts)


def _add(figures: dict[str, float], field: str, value: float) -> None:
    before = figures.get(field, 0.0)
    figures[field] = max(before, value) if field == "kv_cache" else before + value


def figure(number: bytes) -> float | None:
    """A published number; None for what is none, or is more than can be counted."""
    try:
        value = float(number)
    except ValueError:
        return None
    return max(0.0, value) if value <= _MOST else None
