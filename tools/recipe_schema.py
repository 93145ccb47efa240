"""The JSON Schema of recipes, for editors: `python -m tools.recipe_schema`.

It covers the plug-ins of this project. Kinds with a dot, which are code from outside, are allowed
with any settings.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from orchestrator import contracts, plugins
from orchestrator.dataset import DatasetKind
from orchestrator.recipe.schema import RecipeFile
from orchestrator.recipe.source import walk

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MODE: Final[JsonSchemaMode] = "validation"
_SLOTS: Final = {
    "method": plugins.METHODS,
    "analysis": plugins.ANALYSES,
    "statistic": plugins.STATISTICS,
    "server": plugins.LAUNCH,
    "backend": plugins.BACKENDS,
    "dataset": plugins.DATASETS,
}
_DOTTED: Final = {"type": "string", "pattern": r"\."}
_BY_NAME_TOO: Final = ("server", "backend")


def json_schema() -> dict[str, Any]:
    """The schema of a recipe file, every plug-in of this project included."""
    found = {
        (slot, kind): (plugins.about(family, kind), contracts.load(contracts.BASES[family], kind))
        for slot, family in _SLOTS.items()
        for kind in plugins.kinds(family)
    }
    models: list[type[BaseModel]] = [RecipeFile, *(plugin.Config for _, plugin in found.values())]
    refs, shared = models_json_schema([(model, _MODE) for model in models])
    definitions: dict[str, Any] = shared["$defs"]

    def definition(model: type[BaseModel]) -> dict[str, object]:
        name: str = refs[model, _MODE]["$ref"].rpartition("/")[2]
        return deepcopy(definitions[name])

    for (slot, kind), (about, plugin) in found.items():
        suffixes = plugin.suffixes if issubclass(plugin, DatasetKind) else ()
        settings = definition(plugin.Config)
        definitions[f"{slot}.{kind}"] = _of_kind(settings, kind, about, suffixes)
    for slot in _SLOTS:
        names = sorted([kind for other, kind in found if other == slot])
        outside = {"type": "object", "properties": {"kind": _DOTTED}, "required": ["kind"]}
        branches: list[dict[str, Any]] = [{"$ref": f"#/$defs/{slot}.{kind}"} for kind in names]
        if slot in _BY_NAME_TOO:
            branches = [{"enum": names}, _DOTTED, *branches]
        definitions[slot] = {"anyOf": [*branches, outside]}
    recipe = definition(RecipeFile)
    # Blocks for anchors.
    recipe["patternProperties"] = {"^x-": {}}
    _fill_slots(recipe, definitions)
    reached: set[str] = set()
    waiting: list[object] = [recipe]
    while waiting:
        for _, value in walk(waiting.pop()):
            ref = value.get("$ref") if isinstance(value, Mapping) else None
            if isinstance(ref, str) and (short := ref.rpartition("/")[2]) not in reached:
                reached.add(short)
                waiting.append(definitions[short])
    kept = sorted(reached)
    return {"$schema": _DIALECT, **recipe, "$defs": {name: definitions[name] for name in kept}}


def main() -> None:
    """Write the schema to standard output."""
    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


def _of_kind(
    config: dict[str, Any], kind: str, about: str, suffixes: Sequence[str]
) -> dict[str, Any]:
    """The settings of a kind with the `kind` that chooses them, unless a file's suffix does."""
    made = {**config, "title": kind, "description": about}
    chosen = {"const": kind, "description": about}
    made["properties"] = {"kind": chosen, **config.get("properties", {})}
    if suffixes:
        # In any case; the patterns of JSON Schema have no flag for that.
        endings = (
            r"\." + "".join(f"[{letter}{letter.upper()}]" for letter in suffix.removeprefix("."))
            for suffix in suffixes
        )
        by_suffix = {"properties": {"path": {"pattern": f"({'|'.join(endings)})$"}}}
        made["anyOf"] = [{"required": ["kind"]}, by_suffix]
    else:
        made["required"] = ["kind", *config.get("required", ())]
    return made


def _fill_slots(recipe: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Put the unions where the models have `Any`."""
    recipe["properties"]["dataset"] |= {"$ref": "#/$defs/dataset"}
    recipe["properties"]["methods"]["items"] = {"$ref": "#/$defs/method"}
    definitions["StatisticsSettings"]["properties"]["of"]["items"] = {"$ref": "#/$defs/statistic"}
    recipe["properties"]["analyses"]["items"] = {"$ref": "#/$defs/analysis"}
    models = recipe["properties"]["models"]
    models["additionalProperties"] = False
    entry = definitions[next(iter(models["patternProperties"].values()))["$ref"].rpartition("/")[2]]
    for slot in _BY_NAME_TOO:
        written = entry["properties"][slot]
        entry["properties"][slot] = {
            "$ref": f"#/$defs/{slot}",
            "description": written["description"],
        }
    entry["properties"]["answers"]["anyOf"].insert(0, {"type": "string", "minLength": 1})
    entry["properties"]["base_url"]["anyOf"].insert(0, {"type": "string"})
    ways = (["server", "weights"], ["base_url"], ["answers"])
    entry["oneOf"] = [{"required": names} for names in ways]


if __name__ == "__main__":
    main()
