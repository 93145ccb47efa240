"""The base of all plug-ins: a class whose settings are the type in its brackets."""

from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from orchestrator.settings import Settings

ConfigT = TypeVar("ConfigT", bound=Settings, covariant=True)


class Plugin(Generic[ConfigT]):
    """A plug-in with its settings.

    `class Mine(Base[MySettings])` has `Mine.Config`, which is `MySettings`. Without brackets it is
    that of the base: no settings.

    Attributes:
        Config: Model of the settings.
        config: The settings of this instance.
    """

    Config: ClassVar[type[Settings]] = Settings

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    def __init_subclass__(cls, **more: Any) -> None:  # noqa: ANN401 (passed on)
        super().__init_subclass__(**more)
        found = _in_brackets(cls)
        if found is not None:
            cls.Config = found

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.config == other.config  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"


def _in_brackets(cls: type) -> type[Settings] | None:
    """The settings that a class gives to its base; None where it gives none, or a variable."""
    for base in cls.__dict__.get("__orig_bases__", ()):
        if isinstance(get_origin(base), type) and issubclass(get_origin(base), Plugin):
            for argument in get_args(base):
                if isinstance(argument, type):
                    return argument
    return None
