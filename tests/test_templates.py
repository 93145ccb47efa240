"""Templates of plug-ins and their tests import nothing that is not public."""

import ast
from importlib.resources import files

import pytest

import orchestrator
from orchestrator import plugin

TEMPLATES = [
    one for one in files("orchestrator.templates").iterdir() if one.name.endswith(".py.txt")
]
PUBLIC = {"orchestrator": orchestrator.__all__, "orchestrator.plugin": plugin.__all__}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda one: one.name)
def test_a_template_imports_public_names_alone(template):
    text = template.read_text("utf-8").replace("$", "")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orchestrator"):
            assert {alias.name for alias in node.names} <= set(PUBLIC[node.module or ""])
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} & {"orchestrator"} == set()
