"""Back-ends on this machine, without a server, with which methods compare texts."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from orchestrator import contracts, plugins
from orchestrator.backend import LOCAL, ComparerKind
from orchestrator.errors import UsageError
from orchestrator.recipe.schema import Limits, ModelSpec, Price, Recipe
from orchestrator.units import Part


class LocalModel(msgspec.Struct, frozen=True):
    """A back-end on this machine, as a model that needs no entry in the recipe.

    Attributes:
        spec: Its kind and settings; it costs nothing and is asked one thing at a time.
        identity: What decides its numbers, in words.
    """

    spec: ModelSpec
    identity: dict[str, str]


def local_models(
    parts: Iterable[Part], recipe: Recipe, base: Path, *, allow_code: bool = False
) -> dict[str, LocalModel]:
    """The back-ends that the methods of a recipe name by `comparers`, by their names.

    Args:
        parts: The methods with their settings.
        recipe: Its models must not have these names.
        base: Folder that relative paths of the recipe start from.
        allow_code: Import kinds from outside this project.

    Raises:
        UsageError: If what one needs is not installed, or two things have one name.
    """
    found: dict[str, LocalModel] = {}
    for part in parts:
        for name, comparer in part.method.comparers().items():
            plugin = contracts.load(plugins.BACKENDS, comparer.kind, allow_code=allow_code)
            if not issubclass(plugin, ComparerKind):
                raise UsageError(
                    f"back-end {comparer.kind!r} cannot compare texts; use a kind derived from "
                    "orchestrator.plugin.ComparerKind"
                )
            made = plugin(plugin.Config.model_validate(comparer.settings))
            identity = dict(made.identity(base))
            if name in recipe.models:
                raise UsageError(f"{name!r} is the name of a comparer; rename the model")
            if name in found and found[name].identity != identity:
                raise UsageError(
                    f"{part.name}: another method compares texts by another {name!r}; encoders "
                    f"whose folders have one name cannot be told apart in tables"
                )
            spec = ModelSpec(
                name=name,
                server=None,
                weights=None,
                base_url=LOCAL,
                backend=comparer.kind,
                backend_config=made.located(base).config,
                model=name,
                api_key_env=None,
                system=None,
                limits=Limits(max_in_flight=1),
                price=Price(),
            )
            found[name] = LocalModel(spec, identity)
    return found
