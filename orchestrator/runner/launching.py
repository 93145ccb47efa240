"""The launch kinds of a recipe's models; who only checks a recipe starts none of them."""

from typing import cast

from orchestrator import plugins
from orchestrator.errors import UsageError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.serving import LaunchModule


def launch_module(spec: ModelSpec, *, allow_code: bool) -> LaunchModule:
    """The launch kind of a model.

    Raises:
        UsageError: If it is not launched.
    """
    if spec.server is None:
        raise UsageError(f"model {spec.name!r} has no server to launch")
    module = plugins.load(plugins.LAUNCH, spec.server.kind, allow_code=allow_code)
    return cast("LaunchModule", module)
