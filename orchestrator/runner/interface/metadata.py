"""The metadata of a run that machine-readable results carry: of what, by what, how complete."""

from typing import Any

from orchestrator.runner.interface.result import Result
from orchestrator.runner.planning.revisions import last_revision
from orchestrator.store import RunDirectory


def metadata(result: Result) -> dict[str, Any]:
    """Return what identifies a run and tells how far it is, as JSON values.

    Args:
        result: The run.
    """
    directory = RunDirectory.open(result.path)
    revision = last_revision(directory) or {}
    settings = result.settings
    identities = revision.get("identities") or {}
    status = directory.read_status()
    return {
        "run": str(result.path),
        "name": settings.get("name", result.path.name),
        "orchestrator": revision.get("orchestrator", ""),
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
        **result.completeness.as_json(),
    }
