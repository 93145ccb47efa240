"""YAML text and `--set` to plain data, with the line of every value and every fault of the text.

YAML's traps are closed. Scalars follow YAML 1.2 (`no` is a string, `1e-3` a number, `010` ten,
`12:30:45` a string), a key given twice is a fault, tags are refused, and anchors may be used but
not to build more than `MAX_VALUES` values or a value that holds itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from orchestrator.errors import Fault, RecipeError

KeyPath = tuple[str | int, ...]

MAX_CHARACTERS: Final = 1_000_000
MAX_VALUES: Final = 20_000
MAX_DEPTH: Final = 50

_TOO_MANY: Final = f"more than {MAX_VALUES:,} values, including aliases"
_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL: Final = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT: Final = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT: Final = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_MERGE: Final = re.compile(r"<<\Z")
_RESOLVERS: Final = (
    (_TAG + "null", _NULL),
    (_TAG + "bool", _BOOL),
    (_TAG + "int", _INT),
    (_TAG + "float", _FLOAT),
    (_TAG + "merge", _MERGE),
)


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalar types of YAML 1.2."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012 (PyYAML's own shape)
        None: list(_RESOLVERS)
    }
    n_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # Before the text is read whole: a million characters of short values take half a minute.
        self.n_nodes += 1
        if self.n_nodes > 2 * MAX_VALUES:  # keys are nodes too
            raise yaml.MarkedYAMLError(problem=_TOO_MANY, problem_mark=self.get_mark())
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or 1.2 would take for something other than a string."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012 (PyYAML's own shape)
        **yaml.SafeDumper.yaml_implicit_resolvers,
        None: [*yaml.SafeDumper.yaml_implicit_resolvers.get(None, []), *_RESOLVERS],
    }

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (PyYAML's own shape)
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML reads some line breaks other than \n back wrongly unless they are escaped.
    if not all(line.isprintable() for line in text.split("\n")):
        style: str | None = '"'
    else:
        style = "|" if "\n" in text else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _represent_text)


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed text.

    Attributes:
        file: As shown in faults.
        data: Plain data: dict, list, str, int, float, bool, None.
        lines: 1-based line of every value, by its path; a value of a mapping has its key's line.
        faults: What is wrong with the text although it could be read (keys given twice, …).
        shared: Keys at the top whose block holds an anchor that is used somewhere.
    """

    file: str
    data: Any
    lines: Mapping[KeyPath, int]
    faults: tuple[Fault, ...] = ()
    shared: frozenset[str] = frozenset()

    def line(self, path: KeyPath) -> int:
        """The line of a path, or of its nearest ancestor that is in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def fault(self, path: KeyPath, message: str) -> Fault:
        """Return a fault of the value at a path."""
        return Fault(self.file, self.line(path), message)


class Arguments(Source):
    """Data that Python gave, whose faults name the argument: `Recipe(methods[0].judges)`."""

    def fault(self, path: KeyPath, message: str) -> Fault:
        """Return a fault of the argument at a path."""
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
        return Fault(f"{self.file}({''.join(steps).removeprefix('.')})", 0, message)


def parse(text: str | bytes, file: str) -> Source:
    """Read one YAML document; bytes are UTF-8, in which a byte-order mark is skipped.

    Raises:
        RecipeError: If it is not UTF-8, or can't be read as YAML at all.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise _error(file, line, "not UTF-8 text; save it as UTF-8") from error
    if len(text) > MAX_CHARACTERS:
        raise _error(file, 1, f"longer than {MAX_CHARACTERS:,} characters; is this a recipe?")
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "not valid YAML"
        context = f" {error.context}" if error.context else ""
        said = (words for part, words in _SYNTAX.items() if part in problem)
        # What is not closed ends where the file ends, and begins where it is mended.
        is_open = "end of stream" in problem or "<stream end>" in problem
        mark = (error.context_mark if is_open else None) or error.problem_mark
        message = next(said, f"not valid YAML{context}: {problem}")
        raise _error(file, mark.line + 1 if mark else 1, message) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        found: object = error.character
        code = found if isinstance(found, int) else ord(str(found)[0])
        message = f"the character U+{code:04X} is not allowed in YAML"
        raise _error(file, line, message) from error
    except RecursionError as error:
        raise _error(file, 1, f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        # PyYAML lets int() and chr() fail on version numbers and escapes.
        raise _error(file, 1, f"cannot be read as YAML: {error}") from error
    builder = _Builder(file)
    data = None if node is None else builder.build(node, ())
    return Source(file, data, builder.lines, tuple(builder.faults), frozenset(builder.shared))


def dump_yaml(data: Mapping[str, object]) -> str:
    """Plain data as YAML that `parse` and YAML 1.1 readers read back to the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, indent=2)


def walk(data: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Every value of plain data with its path, parents first."""
    yield path, data
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from walk(value, (*path, key))
    elif isinstance(data, Sequence) and not isinstance(data, str):
        for index, value in enumerate(data):
            yield from walk(value, (*path, index))


def joined(path: KeyPath) -> str:
    """A path as written in messages: `models.gpt.limits`."""
    return ".".join(map(str, path))


def about(path: KeyPath, message: str) -> str:
    """The message behind the path it is about, if any."""
    return f"{joined(path)}: {message}" if path else message


def _error(file: str, line: int, message: str) -> RecipeError:
    return RecipeError([Fault(file, line, message)])


# Of the parser's words a part, and what is said instead.
_SYNTAX: Final = {
    _TOO_MANY: _TOO_MANY,
    "'\\t'": "tab character; indent YAML with spaces",
    "found another document": "a second document starts here ('---'); a recipe must be "
    "one document",
    "mapping values are not allowed": "a second ': ' on this line, or a wrong indent; quote text "
    "that contains ': '",
    "cannot start any token": "a text that begins with '%', '@' or '`' must be in quotes",
    "undefined alias": "'*NAME' repeats what stands behind '&NAME' above, which is missing; quote "
    "a text that begins with '*'",
    "could not find expected ':'": "a line without ': '; write KEY: VALUE, and quote long texts",
    "expected ',' or": "a '{' or '[' that is not closed, or a comma that is missing",
    "expected the node content": "a value that is missing, or a '{' or '[' that is not closed",
    "unexpected end of stream": "a quote that is not closed",
    "unknown escape character": "a backslash in double quotes; write the text in single quotes",
    "expected <block end>": "a wrong indent, or text behind a quote that closes; in single quotes "
    "write ' twice",
    "sequence entries": "a list that begins behind a key; begin it on a line of its own, or [A, B]",
}


class _Builder:
    """Turns nodes into plain data; what it can't read becomes a fault and None."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[Fault] = []
        self.shared: set[str] = set()
        self._n_values = 0
        self._first: dict[int, KeyPath] = {}

    def build(self, node: yaml.Node, path: KeyPath) -> Any:  # noqa: ANN401
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        # An alias is the node of its anchor, met again.
        first = self._first.setdefault(id(node), path)
        if first is not path:
            self.shared.update(map(str, first[:1]))
        self._n_values += 1
        if self._n_values > MAX_VALUES:
            raise _error(self.file, line, _TOO_MANY)
        if len(path) > MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels, or an alias that contains itself"
            raise _error(self.file, line, message)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        self._fault(line, f"the tag {node.tag.replace(_TAG, '!!')!r} is not supported")
        return None

    def _fault(self, line: int, message: str) -> None:
        self.faults.append(Fault(self.file, line, message))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        data: dict[str, Any] = {}
        written: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(line, "a key must be text, not a list or a mapping")
            elif key_node.tag == _TAG + "merge":
                merged.append(value_node)
            elif (key := self._text(key_node.value, line)) is None:
                continue
            elif key in written:
                self._fault(line, f"duplicate key {key!r}, first given on line {written[key]}")
            else:
                written[key] = line
                self.lines[*path, key] = line
                data[key] = self.build(value_node, (*path, key))
        for value_node in merged:
            self._merge(data, value_node, path)
        return data

    def _merge(self, data: dict[str, Any], node: yaml.Node, path: KeyPath) -> None:
        """Add the keys of `<<: *anchor`; keys that are written out win."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self._fault(node.start_mark.line + 1, "'<<' needs a mapping or a list of mappings")
                continue
            # The length of the path bounds an alias that merges itself.
            merged_path = (*path, "<<")
            merged = self.build(source, merged_path)
            added = merged.keys() - data.keys()
            data.update({key: value for key, value in merged.items() if key in added})
            size = len(merged_path)
            for old in [old for old in self.lines if old[:size] == merged_path]:
                at = self.lines.pop(old)
                if len(old) > size and old[size] in added:
                    self.lines.setdefault((*path, *old[size:]), at)

    def _scalar(self, node: yaml.ScalarNode, line: int) -> str | int | float | bool | None:
        value: str = node.value
        match node.tag.removeprefix(_TAG):
            case "str" | "merge" | "!":
                return self._text(value, line)
            case "null":
                return None
            case "bool" if _BOOL.match(value):
                return value.lower() == "true"
            case "int" if _INT.match(value):
                if len(value) > len(str(2**64)):
                    self._fault(line, "whole number of more than 64 bits")
                    return None
                base = {"0o": 8, "0x": 16}.get(value[:2], 10)
                return int(value, base)
            case "float" if _FLOAT.match(value):
                return float(value.lower().replace(".inf", "inf").replace(".nan", "nan"))
            case _:
                self._fault(line, f"the tag {node.tag.replace(_TAG, '!!')!r} is not supported here")
                return None

    def _text(self, value: str, line: int) -> str | None:
        try:
            # As JSON escapes a character beyond 16 bits: by two, which YAML leaves apart.
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._fault(line, "invalid escape sequence (a lone surrogate)")
            return None


SECRET: Final = re.compile(
    r"api[-_]?key$|secret|password|authorization|(?:^|[-_.])token$|(?:^|\.)(?:headers|query)\b",
    re.IGNORECASE,
)


class Written:
    """A recipe's data with its overrides, where each value was written, and all faults found."""

    def __init__(self, source: Source, overrides: Sequence[str] = ()) -> None:
        self.source = source
        self.data: Any = source.data
        self.faults = list(source.faults)
        # Where each was written, and what the user typed, for faults; no value of a secret.
        self._overrides: list[tuple[KeyPath, str]] = []
        for text in overrides:
            target, equals, written = text.partition("=")
            label = f"--set {target}=…" if SECRET.search(target) else f"--set {text}"
            if not equals or not target:
                self.faults.append(Fault(label, 0, "expected name.of.setting=value"))
                continue
            try:
                value = parse(written, label)
            except RecipeError as error:
                self.faults += [Fault(label, 0, fault.message) for fault in error.faults]
                continue
            self.faults += [Fault(label, 0, fault.message) for fault in value.faults]
            try:
                self.data, path = _replaced(self.data, target.split("."), (), value.data)
            except ValueError as error:
                self.faults.append(Fault(label, 0, str(error)))
            else:
                self._overrides.append((path, label))

    def fault(self, path: KeyPath, message: str) -> Fault:
        """A fault of the value at `path`: the file's line, or the override that wrote it."""
        for written, label in reversed(self._overrides):
            if path[: len(written)] == written:
                return Fault(label, 0, message)
        if path not in self.source.lines:
            for written, label in reversed(self._overrides):
                if path and written[: len(path)] == path:
                    return Fault(label, 0, message)
        return self.source.fault(path, message)

    def refuse(self, path: KeyPath, message: str, *further: str | int) -> None:
        """Note a fault about the value at `path`, of which the part `further` inside is wrong."""
        self.faults.append(self.fault((*path, *further), about(path, message)))


def _replaced(
    data: object, steps: list[str], path: KeyPath, value: object
) -> tuple[object, KeyPath]:
    """A copy of `data` with `value` at `steps`, and the path that the steps stand for."""
    if not steps:
        return value, path
    shown = joined(path) or "the recipe"
    if isinstance(data, list):
        step = steps[0]
        if not re.fullmatch(r"[0-9]{1,6}", step) or int(step) > len(data):
            raise ValueError(
                f"{shown} is a list of {len(data)}; give an index from 0 to {len(data)} "
                f"({len(data)} appends), not {step!r}"
            )
        index = int(step)
        here = data[index] if index < len(data) else None
        changed, whole = _replaced(here, steps[1:], (*path, index), value)
        return [*data[:index], changed, *data[index + 1 :]], whole
    if data is not None and not isinstance(data, dict):
        raise ValueError(
            f"{shown} is {data!r}, so it has no {'.'.join(steps)!r}; set the whole: "
            f"--set '{shown}={{{steps[0]}: ...}}'"
        )
    mapping: dict[str, Any] = data or {}
    # The longest run of steps that is a key: names of models have dots (gpt-4.1).
    sizes = range(len(steps), 1, -1)
    size = next((size for size in sizes if ".".join(steps[:size]) in mapping), 1)
    key, rest = ".".join(steps[:size]), steps[size:]
    changed, whole = _replaced(mapping.get(key), rest, (*path, key), value)
    return {**mapping, key: changed}, whole
