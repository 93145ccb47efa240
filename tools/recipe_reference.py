"""Write the tables of docs/recipes.md, every key of a recipe, from the JSON Schema of recipes.

`python tools/recipe_reference.py [FILE]`, called by `make schema`; a test holds the page current.
What several kinds of a part share is in one table, what each has alone in another.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.recipe_schema import json_schema

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "recipes.md"
BEGIN: Final = "<!-- begin of what `make schema` writes -->"
END: Final = "<!-- end of what `make schema` writes -->"

_SECTIONS: Final = {
    "ModelEntry": "`models.NAME`",
    "Cluster": "`cluster`, and `cpus`, `gpus` and `memory` of `cluster.models.NAME`",
}
# Smaller parts, in one table.
_PARTS: Final = {
    "Limits": "`limits`, `models.NAME.limits`",
    "Price": "`models.NAME.price`",
    "GivenAnswers": "`models.NAME.answers`",
    "Thinking": "`models.NAME.thinking`",
    "Batch": "`models.NAME.batch`",
    "FieldNames": "`dataset.fields`",
    "Drawing": "`answer`, `reasoning` and other sampling",
    "StatisticsSettings": "`statistics`",
    "StopWhen": "`statistics.stop_when`",
    "Budget": "`budget`",
    "Window": "`window`",
    "Resources": "`resources`",
}
# Parts of a recipe that name a kind.
_SLOTS: Final = {
    "method": "`methods`",
    "analysis": "`analyses`",
    "statistic": "`statistics.of`",
    "dataset": "`dataset`",
    "server": "`models.NAME.server`",
    "backend": "`models.NAME.backend`",
}
# A setting that so many kinds of a part have alike is told once.
_SHARED_BY: Final = 2
_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
    "null": "null",
}


def reference() -> str:
    """Return the tables, one for each part of a recipe."""
    schema = json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    parts = [_part("The recipe", schema)]
    parts += [_part(title, definitions[name]) for name, title in _SECTIONS.items()]
    smaller = {title: list(_rows(definitions[name])) for name, title in _PARTS.items()}
    parts.append(_by_name("Parts of the recipe", "part", smaller))
    for slot, title in _SLOTS.items():
        prefix = f"{slot}."
        kinds = {
            name.removeprefix(prefix): list(_rows(definition))
            for name, definition in definitions.items()
            if name.startswith(prefix)
        }
        parts += _of_all_kinds(title, kinds)
    return "\n\n".join(parts)


def _of_all_kinds(title: str, kinds: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a table of what several kinds share, then one of all kinds' own settings."""
    counts = Counter(row for rows in kinds.values() for row in rows)
    # Of a key that kinds word differently, only the commonest is shared: each key has one row.
    common = {
        _key(row): row for row, count in reversed(counts.most_common()) if count >= _SHARED_BY
    }
    shared = set(common.values())
    if shared:
        told = {row: [kind for kind, rows in kinds.items() if row in rows] for row in shared}
        rows = [f"{row} {_named(told[row], list(kinds))} |" for row in sorted(shared)]
        yield _table(
            f"{title}: settings of several kinds", rows,
            "key", "value", "default", "what it does", "kinds",
        )  # fmt: skip
    own = {f"`{kind}`": [row for row in rows if row not in shared] for kind, rows in kinds.items()}
    # A kind without settings of its own is named where those of several are, if it has those.
    alone = {
        name: found or ["|  |  |  | No settings. |"]
        for (name, found), rows in zip(own.items(), kinds.values(), strict=True)
        if found or not rows
    }
    yield _by_name(title, "kind", alone)


def _named(some: Sequence[str], kinds: Sequence[str]) -> str:
    """Return the kinds that have a setting in few words."""
    others = [kind for kind in kinds if kind not in some]
    if len(others) >= len(some):
        return ", ".join(f"`{kind}`" for kind in some)
    return "all" + (f" but {', '.join(f'`{kind}`' for kind in others)}" if others else "")


def _by_name(title: str, column: str, rows: Mapping[str, list[str]]) -> str:
    """Return a table of the settings of several parts or kinds."""
    found = [
        f"| {name} {row}" if place == 0 else f"|  {row}"
        for name, own in rows.items()
        for place, row in enumerate(own)
    ]
    return _table(title, found, column, "key", "value", "default", "what it does")


def _key(row: str) -> str:
    return row.split(" | ")[0].removeprefix("| ")


def replaced(page: str) -> str:
    """Return a page with the current tables between its marks.

    Raises:
        ValueError: If it has no marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no marks to write between")
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def main(file: Path) -> None:
    """Write the tables into a page."""
    file.write_text(replaced(file.read_text(encoding="utf-8")), encoding="utf-8")


def _part(title: str, definition: Mapping[str, Any]) -> str:
    return _table(title, list(_rows(definition)))


def _table(title: str, rows: list[str], *columns: str) -> str:
    columns = columns or ("key", "value", "default", "what it does")
    head = [f"| {' | '.join(columns)} |", f"|{' :--- |' * len(columns)}"]
    return "\n".join([f"### {title}", "", *head, *rows])


def _rows(definition: Mapping[str, Any]) -> Iterator[str]:
    required = definition.get("required", ())
    for name, setting in definition["properties"].items():
        if "const" in setting:
            continue  # the kind, which is in the heading
        text = " ".join(setting.get("description", "").split()).replace("|", "\\|")
        default = setting.get("default")
        if isinstance(required, list) and name in required:
            default = "**needed**"
        elif isinstance(default, dict):
            default = "see its table" if default else ""
        else:
            default = "" if default in (None, "", []) else f"`{json.dumps(default)}`"
        yield f"| `{name}` | {_value(setting)} | {default} | {text} |"


def _value(setting: Mapping[str, Any]) -> str:
    if "$ref" in setting:
        name = setting["$ref"].rpartition("/")[2]
        return "kind and its settings" if name in _SLOTS else "mapping"
    if "const" in setting:
        return f"`{setting['const']}`"
    if "enum" in setting:
        return ", ".join(f"`{value}`" for value in setting["enum"])
    if "anyOf" in setting:
        kinds = [_value(arm) for arm in setting["anyOf"]]
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    kind = setting.get("type")
    if kind == "array" and isinstance(setting.get("items"), dict):
        inner = _value(setting["items"])
        return f"list of {inner}" if inner else "list"
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {setting[key]}" for key, sign in words.items() if key in setting]
    return _WORDS.get(str(kind), "") + (f" {', '.join(found)}" if found else "")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PAGE)
