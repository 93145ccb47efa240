"""`orchestrator.plugin` has all that an author of a plug-in needs, and is cheap to import."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args, get_type_hints

import polars as pl
import pytest

from orchestrator import plugin

# Of annotations that are only imported for a type checker.
NAMES = {"pl": pl, **{name: getattr(plugin, name) for name in plugin.__all__}}


def named_in(annotation: object) -> Iterator[type]:
    """The classes of ours that an annotation names."""
    if isinstance(annotation, type) and annotation.__module__.startswith("orchestrator."):
        yield annotation
    for part in get_args(annotation):
        yield from named_in(part)


@pytest.mark.parametrize(
    "base",
    [
        plugin.Analysis,
        plugin.Backend,
        plugin.BackendKind,
        plugin.ComparerKind,
        plugin.Dataset,
        plugin.DatasetKind,
        plugin.LaunchKind,
        plugin.Method,
        plugin.Summary,
    ],
)
def test_every_type_that_a_base_class_names_is_exported(base):
    functions = [
        value.fget if isinstance(value, property) else value
        for name, value in inspect.getmembers(base)
        if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, property))
    ]
    assert functions
    values = [getattr(plugin, name) for name in plugin.__all__]
    exported = {value for value in values if isinstance(value, type)}
    for function in functions:
        for annotation in get_type_hints(function, localns=NAMES).values():
            assert set(named_in(annotation)) <= exported, function


def test_it_imports_nothing_heavy():
    code = "import sys, orchestrator.plugin; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    heavy = {"polars", "scipy", "torch", "rich", "aiohttp", "openai", "jinja2"}
    assert not heavy & set(done.stdout.split())
