"""Load figures in Prometheus text, named as vLLM names them but for the prefix `orchestrator:`."""

from __future__ import annotations

from collections.abc import Iterable

from launch.embedded.served import Served

_FIGURES = (
    ("num_requests_running", "gauge", "Requests under way"),
    ("num_requests_waiting", "gauge", "Requests that wait for their first pass"),
    ("prompt_tokens_total", "counter", "Prompt tokens of requests begun"),
    ("prompt_tokens_cached_total", "counter", "Prompt tokens taken from the prefix cache"),
    ("generation_tokens_total", "counter", "Drawn tokens"),
    ("requests_total", "counter", "Requests queued"),
    ("requests_failed_total", "counter", "Requests that the engine failed"),
    ("admission_rejections_total", "counter", "Requests refused because too many waited"),
    ("engine_steps_total", "counter", "Decoding steps"),
)


def prometheus(models: Iterable[Served]) -> str:
    """The figures of all models."""
    models = list(models)
    lines = []
    for place, (name, kind, text) in enumerate(_FIGURES):
        full = f"orchestrator:{name}"
        lines += [f"# HELP {full} {text}.", f"# TYPE {full} {kind}"]
        for served in models:
            label = served.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'{full}{{model_name="{label}"}} {_values(served)[place]}')
    return "\n".join(lines) + "\n"


def _values(served: Served) -> tuple[int, ...]:
    engine, counters = served.engine, served.engine.counters
    return (
        engine.n_running,
        engine.n_waiting,
        counters.prompt_tokens,
        counters.cached_tokens,
        counters.generated_tokens,
        counters.requests,
        counters.failed,
        counters.refused,
        counters.steps,
    )
