"""Prompt templates: sandboxed Jinja, undefined names are errors.

Templates are data, also those a user writes into a recipe, so they are rendered by Jinja's
immutable sandbox with nothing but the item's fields, and within bounds of time and memory. What a
model wrote is substituted as text and never parsed as a template. What several prompts share stands
first and what varies stands last, so that servers can reuse the prefix.
"""

from functools import lru_cache

from jinja2 import Template, UndefinedError, meta, nodes

from orchestrator.errors import UsageError
from orchestrator.prompts.bounded import BoundedEnvironment
from orchestrator.prompts.costs import allowance

_environment = BoundedEnvironment()

_NONE = object()


class PromptError(UsageError):
    """A template is malformed, or an item lacks a field that it needs."""


@lru_cache(maxsize=256)
def compile_template(source: str) -> Template:
    """A compiled template.

    Raises:
        PromptError: If it is not a valid template.
    """
    try:
        with allowance():
            return _environment.from_string(source)
    except Exception as error:
        raise PromptError(f"prompt template: {_reason(error)}") from error


def variables(source: str) -> frozenset[str]:
    """Names that a template takes from outside.

    Raises:
        PromptError: If it is not a valid template, or includes another.
    """
    try:
        parsed = _environment.parse(source)
        found = meta.find_undeclared_variables(parsed)
    except Exception as error:
        raise PromptError(f"prompt template: {_reason(error)}") from error
    if next(meta.find_referenced_templates(parsed), _NONE) is not _NONE:
        raise PromptError("prompt template: it includes another file; write all of it in one")
    return frozenset(found) - _environment.globals.keys()


def render(source: str, fields: dict[str, str | None]) -> str:
    """The template with the fields filled in; a field that is None counts as undefined.

    Raises:
        PromptError: If the template is invalid or uses a field that is not there.
    """
    parts = _plain_parts(source)
    if parts is not None:
        texts = [fields.get(text) if is_name else text for is_name, text in parts]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) == len(parts):
            return "".join(known)
    given = {name: value for name, value in fields.items() if value is not None}
    compiled = compile_template(source)
    try:
        with allowance():
            return compiled.render(given)
    except UndefinedError as error:
        raise PromptError(f"prompt template: {error}; this item has no such field") from error
    except Exception as error:
        raise PromptError(f"prompt template: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep, or calls itself without end"
    return str(error) or type(error).__name__


@lru_cache(maxsize=256)
def _plain_parts(source: str) -> tuple[tuple[bool, str], ...] | None:
    """A template that only fills in names, as its parts: (is a name, the name or the text).

    None for every other template. Jinja takes ten times longer to fill in four names than it
    takes to join the parts, and most prompts are rendered once for each judgment.
    """
    parts: list[tuple[bool, str]] = []
    try:
        body = _environment.parse(source).body
    except Exception:  # noqa: BLE001 (see render)
        return None
    for output in body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                parts.append((False, node.data))
            elif isinstance(node, nodes.Name) and node.name not in _environment.globals:
                parts.append((True, node.name))
            else:
                return None
    return tuple(parts)
