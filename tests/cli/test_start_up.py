"""What a command imports, by the modules that are loaded; how long it takes is in benchmarks/."""

import argparse
import json
import subprocess
import sys

import pytest

from orchestrator import cli

HEAVY = ("aiohttp", "numpy", "openai", "polars", "pydantic", "rich", "scipy", "sqlite3", "yaml")
CODE = """
import json, sys
from orchestrator.cli import main
try:
    main(json.loads(sys.argv[1]))
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*arguments):
    """The packages that are in memory after a command."""
    ended = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in json.loads(ended.stderr.splitlines()[-1])}


def commands():
    (action,) = (
        found for found in cli._parser()._actions if isinstance(found, argparse._SubParsersAction)
    )
    return action.choices


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["rum"]])
def test_what_runs_nothing_loads_nothing_that_takes_long(arguments):
    assert loaded(*arguments).isdisjoint(HEAVY)


def test_a_check_loads_neither_statistics_nor_polars():
    assert loaded("check", "pairwise_ranking").isdisjoint({"openai", "polars", "scipy", "torch"})


def test_the_words_for_heavy_packages_are_those_that_a_check_loads():
    assert {"pydantic", "yaml"} <= loaded("check", "pairwise_ranking")


@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_function(name):
    assert callable(cli._handler(commands()[name].get_default("handler")))
