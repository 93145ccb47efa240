"""The words after a run: each thing is said once."""

import argparse
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.commands import run
from orchestrator.commands.messages import Said
from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.progress import Completeness
from orchestrator.runner.session.session import Ended
from tests.report.samples import a_model, a_progress

FAULT = "its server refuses the key"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_model_that_was_given_up_is_named_once(capsys, quiet):
    progress = a_progress(models=(a_model(fault=f"expert {FAULT}"),), failures={}, units_failed=0)
    result = cast(
        "Any",
        SimpleNamespace(
            ended=Ended(progress), warnings=[], completeness=Completeness(), path="here"
        ),
    )
    options = argparse.Namespace(quiet=quiet, format="json", strict=False)
    said = Said()
    if not quiet:
        said.summary(progress, 0)
    assert run._code(result, options, said) == EXIT_COMPLETE
    assert " ".join(capsys.readouterr().err.split()).count(FAULT) == 1
