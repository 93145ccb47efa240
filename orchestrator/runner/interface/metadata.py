"""The metadata of a run that machine-readable results carry: of what, by what, how complete."""

from pathlib import Path
from typing import Any

from orchestrator.report.completeness import Completeness
from orchestrator.runner.results.record import Record


def run_metadata(path: Path, record: Record, completeness: Completeness) -> dict[str, Any]:
    """Return the identity and progress of a run, as JSON values.

    Args:
        path: The run directory.
        record: What it says of itself.
        completeness: How far the run is.
    """
    settings, identities, status = record.recipe, record.identities, record.status
    return {
        "run": str(path),
        "name": settings.get("name", path.name),
        "orchestrator": record.version,
        "at": None if status is None else status.at.isoformat(timespec="seconds"),
        "seed": settings.get("seed"),
        "limit": settings.get("limit"),
        "subset": settings.get("subset"),
        "dataset": settings.get("dataset"),
        "models": {
            name: {str(key): str(value) for key, value in (identities.get(name) or {}).items()}
            for name in settings.get("models", {})
        },
        "methods": [one.get("name") or one.get("kind") for one in settings.get("methods", ())],
        "confidence_level": settings.get("statistics", {}).get("confidence_level", 0.95),
        **completeness.as_json(),
    }
