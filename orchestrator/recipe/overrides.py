"""`--set a.b=c`: values from the command line written over those of the recipe file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import Fault, RecipeError
from orchestrator.recipe.source import KeyPath, Source, parse

SECRET: Final = re.compile(
    r"api[-_]?key$|secret|password|authorization|(?:^|[-_.])token$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Override:
    """A value from the command line.

    Attributes:
        path: Where it was written.
        label: What the user typed, for faults; the value of a secret is left out.
    """

    path: KeyPath
    label: str


class Written:
    """A recipe's data with its overrides, and where each value was written."""

    def __init__(self, source: Source, overrides: Sequence[str] = ()) -> None:
        self.source = source
        self.data: Any = source.data
        self.faults = list(source.faults)
        self._overrides: list[Override] = []
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
                self._overrides.append(Override(path, label))

    def fault(self, path: KeyPath, message: str) -> Fault:
        """A fault of the value at `path`: the file's line, or the override that wrote it."""
        for override in reversed(self._overrides):
            if path[: len(override.path)] == override.path:
                return Fault(override.label, 0, message)
        if path not in self.source.lines:
            for override in reversed(self._overrides):
                if path and override.path[: len(path)] == path:
                    return Fault(override.label, 0, message)
        return self.source.fault(path, message)


def _replaced(
    data: object, steps: list[str], path: KeyPath, value: object
) -> tuple[object, KeyPath]:
    """A copy of `data` with `value` at `steps`, and the path that the steps stand for."""
    if not steps:
        return value, path
    if isinstance(data, list):
        step = steps[0]
        if not re.fullmatch(r"[0-9]{1,6}", step) or int(step) > len(data):
            raise ValueError(
                f"{_shown(path)} is a list of {len(data)}; give an index from 0 to {len(data)} "
                f"({len(data)} appends), not {step!r}"
            )
        index = int(step)
        here = data[index] if index < len(data) else None
        changed, whole = _replaced(here, steps[1:], (*path, index), value)
        return [*data[:index], changed, *data[index + 1 :]], whole
    if data is not None and not isinstance(data, dict):
        raise ValueError(
            f"{_shown(path)} is {data!r}, so it has no {'.'.join(steps)!r}; set the whole: "
            f"--set '{_shown(path)}={{{steps[0]}: ...}}'"
        )
    mapping: dict[str, Any] = data or {}
    # The longest run of steps that is a key: names of models have dots (gpt-4.1).
    sizes = range(len(steps), 1, -1)
    size = next((size for size in sizes if ".".join(steps[:size]) in mapping), 1)
    key, rest = ".".join(steps[:size]), steps[size:]
    changed, whole = _replaced(mapping.get(key), rest, (*path, key), value)
    return {**mapping, key: changed}, whole


def _shown(path: KeyPath) -> str:
    return ".".join(map(str, path)) or "the recipe"
