"""The base of all plug-ins: a class whose settings are the type in its brackets."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any, ClassVar, Generic, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function
from typing_extensions import NoDefault, TypeVar

# The base of settings whose fields are described by the strings below them.
#
# Only who shows a description reads the source for it: an editor's schema, the reference, a message
# about a setting that is missing. Pydantic's own `use_attribute_docstrings` reads it whenever a
# model is imported, which took a tenth of `orchestrator check`.


class Settings(BaseModel):
    """Base of settings: frozen, unknown keys are faults, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema, whose numbers refuse `true`, of which pydantic makes 1."""

        def number(value: object) -> object:
            if isinstance(value, bool):
                raise PydanticCustomError("no_number", "must be a number")
            return value

        schema = handler(source)
        parts: list[object] = [schema]
        for part in parts:  # grows
            if isinstance(part, list):
                parts += part
            elif isinstance(part, dict) and part.get("type") not in ("int", "float"):
                parts += part.values()
            elif isinstance(part, dict) and "strict" not in part:
                # Said of what is wrapped, so that settings in settings are wrapped once.
                part["strict"] = False
                inner: Any = part.copy()
                part.clear()
                part |= no_info_before_validator_function(number, inner)
        return schema

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


# The standard library's has no default before Python 3.13.


ConfigT = TypeVar("ConfigT", bound=Settings, covariant=True, default=Settings)


class Plugin(Generic[ConfigT]):
    """A plug-in with its settings.

    `class Mine(Base[MySettings])` has `Mine.Config`, which is `MySettings`. Without brackets it is
    that of the base: no settings.

    Attributes:
        Config: Model of the settings.
        config: The settings of this instance.
        cites: Works that a user of it cites: keys of `references.bib`, or whole BibTeX entries.
    """

    Config: ClassVar[type[Settings]] = Settings
    cites: ClassVar[tuple[str, ...]] = ()
    # The variable that a class derived from this one fills in; None once that is done.
    _open: ClassVar[object] = None

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        found = _in_brackets(cls)
        if found is None:
            cls._open = None
        elif isinstance(found, TypeVar):
            cls._open = found
            # One of the standard library says nothing of a default before Python 3.13.
            default = getattr(found, "__default__", NoDefault)
            if default is NoDefault:
                default = found.__bound__
            if isinstance(default, type) and issubclass(default, cls.Config):
                cls.Config = default
        elif isinstance(found, type) and issubclass(found, Settings):
            cls._open, cls.Config = None, found
        else:
            said = getattr(found, "__name__", None) or repr(found)
            raise TypeError(
                f"{cls.__qualname__}: its brackets contain {said}; expected a class derived from "
                "orchestrator.plugin.Settings, or no brackets if there are no settings"
            )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.config == other.config

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"


(Plugin._open,) = vars(Plugin)["__parameters__"]  # noqa: SLF001 (of this class)


def _in_brackets(cls: type[Plugin[Any]]) -> object:
    """The type, or type variable, that a class gives for its settings; None where it gives none."""
    for base in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(base)
        if not (isinstance(origin, type) and issubclass(origin, Plugin)):
            continue
        parameters = getattr(origin, "__parameters__", ())
        if origin._open in parameters:  # noqa: SLF001 (of the same class)
            return get_args(base)[parameters.index(origin._open)]  # noqa: SLF001 (of the same class)
    return None
