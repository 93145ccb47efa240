"""Messages name a setting of a back-end where a recipe takes it: under `backend`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import contracts, plugins
from orchestrator.backend import BackendKind
from orchestrator.recipe.schema import ModelEntry

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("backends", "launch", "orchestrator")
HINT = re.compile(r"backend: \{kind: (\w+)(?:, (\w+): [^}]*)?\}")


def settings() -> dict[str, set[str]]:
    """The names of the settings of each kind of back-end."""
    kinds = plugins.kinds(plugins.BACKENDS)
    return {kind: {*contracts.load(BackendKind, kind).Config.model_fields} for kind in kinds}


def texts(path: Path) -> Iterator[str]:
    """Texts of a file that are no docstrings, with `x` for what is put into them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    stated = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(one) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for one in node.values}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (one.value if isinstance(one, ast.Constant) else "x" for one in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in stated | inner:
            yield str(node.value)


@pytest.mark.parametrize("place", PLACES)
def test_a_setting_of_a_back_end_is_named_under_backend(place):
    known = settings()
    own = set().union(*known.values()) - {*ModelEntry.model_fields}
    for path in sorted((ROOT / place).rglob("*.py")):
        for text in texts(path):
            for kind, name in HINT.findall(text):
                if kind != "x" and name not in {"", "x"}:
                    assert name in known[kind], f"{path}: {text}"
            bare = re.findall(r"(?:say|set|with) `(\w+): ", text)
            assert not own.intersection(bare), f"{path}: {text}"
            assert "in its settings" not in text, f"{path}: {text}"
