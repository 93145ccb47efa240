"""The launch kinds of a recipe's models; who only checks a recipe starts none of them."""

from orchestrator import contracts, plugins
from orchestrator.errors import UsageError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.serving import LaunchKind


def launch_of(spec: ModelSpec, *, allow_code: bool) -> LaunchKind:
    """Return the launch kind of a model with its settings.

    Raises:
        UsageError: If it is not launched.
    """
    if spec.server is None:
        raise UsageError(f"model {spec.name!r} has no server to launch")
    kind = contracts.load(plugins.LAUNCH, spec.server.kind, allow_code=allow_code)
    return kind(spec.server.config)
