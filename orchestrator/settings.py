"""The base of settings whose fields are described by the strings below them.

Only who shows a description reads the source for it: an editor's schema, the reference, a message
about a setting that is missing. Pydantic's own `use_attribute_docstrings` reads it whenever a model
is imported, which took a tenth of `orchestrator check`.
"""

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Settings(BaseModel):
    """Base of settings: frozen, unknown keys are faults, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        """The JSON Schema with the descriptions."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            properties[name]["description"] = text
        return schema


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the description of each field: that of `Field`, else the string below the field."""
    found: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if issubclass(parent, Settings):
            found |= _strings_below(parent)
    said = {name: field.description for name, field in model.model_fields.items()}
    return {name: text for name, own in said.items() if (text := own or found.get(name))}


def _strings_below(model: type[BaseModel]) -> dict[str, str]:
    """The string that stands below each annotated name in the body of a class."""
    try:
        source = inspect.getsource(model)
    except OSError:  # installed without source
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    found = {}
    for statement, below in pairwise(getattr(definition, "body", ())):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found
