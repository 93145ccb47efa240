"""A Jinja sandbox whose templates can take only so much time and memory.

Jinja's own sandbox keeps a template from reaching into Python, but `{{ 'x' * 10**9 }}` or a loop in
a loop still stops the program. Here each operation that makes a value is charged by the size of
what it takes and makes, each turn of a loop and each call by a fixed price, and a rendering that
exceeds its allowance ends with `TemplateTooCostly`.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import BuiltinMethodType
from typing import Any, Final, cast

from jinja2 import DictLoader, StrictUndefined, nodes
from jinja2.environment import Environment
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.prompts.costs import (
    CALL,
    OF_FILTERS,
    OF_OPERATORS,
    STEP,
    TemplateTooCostly,
    bound,
    by_braces,
    charge,
    joined,
    padded,
    replaced,
    size_of,
)

MOST_NODES: Final = 20_000
"""Most names, constants, operations and pieces of text that a template may have."""

# Filters that templates are compiled to; no name in a template has a blank.
_COUNTED: Final = " counted"
_LOOKED_AT: Final = " looked at"
_CONCATENATED: Final = " concatenated"
_SLICE: Final = " slice"
_NOT_REPRODUCIBLE: Final = frozenset({"lipsum", "random"})
# Methods whose result is no larger than the text, a few times over.
_LINEAR: Final = frozenset({
    "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace",
    "istitle", "isupper", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "rfind",
    "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
    "swapcase", "title", "upper",
})  # fmt: skip
_PADDING: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_OF_NUMBERS: Final = frozenset({"bit_count", "bit_length", "conjugate", "hex", "is_integer"})


def _join(original: Callable[..., object]) -> Callable[..., object]:
    """The filter `join`, over a list: what it takes may be a generator, which has no size."""

    @wraps(original)
    def join(eval_ctx: object, value: Iterable[object], d: str = "", **more: object) -> object:
        parts = list(value)
        bound(joined(parts, d))
        return original(eval_ctx, parts, d, **more)

    return join


def _sum(original: Callable[..., object]) -> Callable[..., object]:
    """The filter `sum`, of numbers alone: lists would be copied once for each."""

    @wraps(original)
    def add(
        environment: Environment, value: Iterable[object], *more: object, **named: object
    ) -> object:
        if isinstance(named.get("start", more[1] if len(more) > 1 else 0), list | tuple | str):
            raise TemplateTooCostly("it sums what are no numbers; join texts instead")
        return original(environment, value, *more, **named)

    return add


def _bounded(name: str, original: Callable[..., object]) -> Callable[..., object]:
    """A filter that is charged for what it takes and what it makes."""
    inner = {"join": _join, "sum": _sum}.get(name, lambda same: same)(original)
    made = OF_FILTERS.get(name)
    n_passed = 1 if hasattr(original, "jinja_pass_arg") else 0

    @wraps(original)
    def bounded(*arguments: object, **named: object) -> object:
        given = arguments[n_passed:]
        bound(STEP + size_of(given) + size_of(named))
        if made is not None:
            bound(made(*given, **named))
        result = inner(*arguments, **named)
        bound(size_of(result))
        return result

    return bounded


def _test(original: Callable[..., object]) -> Callable[..., object]:
    """A test (`is lower`, `is in`) that is charged for what it looks at."""

    @wraps(original)
    def test(*arguments: object, **named: object) -> object:
        bound(STEP + size_of(arguments) + size_of(named))
        return original(*arguments, **named)

    return test


def _counted(values: Iterable[object]) -> Iterator[object]:
    """Yield the values of a loop, each for a fixed price."""
    for value in values:
        charge(STEP)
        yield value


def _looked_at(value: object) -> object:
    """Return a value that is compared, searched or hashed: with all that it holds."""
    bound(size_of(value))
    return value


def _concatenated(parts: list[object]) -> str:
    """Return the concatenation (`~`) of values."""
    bound(size_of(parts))
    return "".join(map(str, parts))


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The immutable sandbox with bounds; it loads no other template and draws nothing at random."""

    intercepted_binops = frozenset(OF_OPERATORS)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=True,
            loader=DictLoader({}),
            finalize=_shown,
        )
        self.globals = {k: v for k, v in self.globals.items() if k not in _NOT_REPRODUCIBLE}
        self.filters = {
            name: _bounded(name, made)
            for name, made in self.filters.items()
            if name not in _NOT_REPRODUCIBLE
        }
        self.filters |= {
            _COUNTED: _counted,
            _LOOKED_AT: _looked_at,
            _CONCATENATED: _concatenated,
            _SLICE: slice,
        }
        tests: dict[str, Any] = self.tests
        self.tests = {name: _test(made) for name, made in tests.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        parsed = super()._parse(source, name, filename)
        if sum(1 for _ in parsed.find_all(nodes.Node)) > MOST_NODES:
            raise TemplateTooCostly(f"it has more than {MOST_NODES:,} parts")

        def through(name: str, first: nodes.Node, *more: nodes.Node) -> nodes.Filter:
            return nodes.Filter(
                first, name, [*more], [], None, None, lineno=first.lineno, environment=self
            )

        # What Jinja has no hook for goes through filters.
        for node in list(parsed.find_all(nodes.Node)):
            match node:
                case nodes.For():
                    node.iter = through(_COUNTED, node.iter)
                case nodes.Compare() | nodes.Operand():
                    node.expr = through(_LOOKED_AT, node.expr)
                case nodes.Dict():
                    for pair in node.items:
                        # A key is hashed with all that it holds.
                        pair.key = through(_LOOKED_AT, pair.key)
                case nodes.Concat():
                    parts = nodes.List(node.nodes, lineno=node.lineno, environment=self)
                    node.nodes = [through(_CONCATENATED, parts)]
                case nodes.Getitem(arg=nodes.Slice() as part):
                    # As an index like any other, by `getitem`.
                    nothing = nodes.Const(None, lineno=node.lineno, environment=self)
                    start, stop, step = (
                        nothing if one is None else one
                        for one in (part.start, part.stop, part.step)
                    )
                    node.arg = through(_SLICE, start, stop, step)
                case _:
                    pass
        return parsed

    def concat(self, parts: Iterable[str]) -> str:
        """Join what a template or a part of it wrote."""
        kept = []
        for part in parts:
            charge(len(part))
            kept.append(part)
        bound(sum(map(len, kept)))
        return "".join(kept)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Apply an operator whose result is not too large."""
        bound(OF_OPERATORS[operator](left, right))
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: object, argument: object) -> object:
        """Return an element, or a slice, which is a copy."""
        bound(size_of(argument))
        found = super().getitem(obj, argument)
        charge(len(found) if isinstance(found, str | list | tuple) else 1)
        return found

    def call(self, context: Context, obj: object, *arguments: object, **named: object) -> object:
        """Call what is safe and not too costly."""
        bound(CALL + size_of(arguments) + size_of(named))
        if isinstance(obj, BuiltinMethodType):
            owner, name = obj.__self__, obj.__name__
            if isinstance(owner, str):
                charge(len(owner))
                if name == "join" and len(arguments) == 1:
                    parts = list(cast("Iterable[object]", arguments[0]))
                    arguments = (parts,)
                    bound(joined(parts, owner))
                elif name == "replace":
                    bound(replaced(owner, *arguments))
                elif name in _PADDING:
                    bound(padded(owner, *arguments))
                elif name not in _LINEAR:
                    raise TemplateTooCostly(f"the method {name!r} of a text may not be called")
            elif isinstance(owner, bytes) or (
                isinstance(owner, int | float) and name not in _OF_NUMBERS
            ):
                raise TemplateTooCostly(f"the method {name!r} may not be called")
        result = super().call(context, obj, *arguments, **named)
        bound(size_of(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401 (Jinja's)
        """Return the sandbox's `str.format`, with its result bounded; None for anything else."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        pattern = str(value.__self__)

        @wraps(wrapped)
        def format_text(*arguments: object, **named: object) -> str:
            bound(by_braces(pattern, (arguments, named)))
            return wrapped(*arguments, **named)

        return format_text


def _shown(value: object) -> object:
    """Return the value to write into the prompt, once its size is known to be in bounds."""
    if not isinstance(value, str):
        bound(size_of(value))
    return value
