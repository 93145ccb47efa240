"""Evaluates language models with the models' own probabilities.

result = orchestrator.run("recipes/pairwise_ranking.yaml")
result.frames["judgments"]            # a polars frame
result = orchestrator.load("runs/pairwise_ranking")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.runner.api import load, run

__version__ = "0.1.0"
__all__ = ["load", "run"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (PEP 562)
    # Lazily: `import orchestrator` must not cost the import of polars and pydantic.
    if name in __all__:
        from orchestrator.runner import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
