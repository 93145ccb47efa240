"""`orchestrator cite`: BibTeX and a methods paragraph of a run."""

import argparse
import sys

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.text import write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path
from orchestrator.runner.commands.messages import Said


def cite(options: argparse.Namespace) -> int:
    """Print the citations of a run."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    if warning := result.completeness.words():
        Said().complain(warning)
    found = result.cite()
    match options.format:
        case "bibtex":
            write_to(sys.stdout, found.bibtex)
        case "json":
            write_to(sys.stdout, found.to_json())
        case _:
            write_to(sys.stdout, f"{found.text}\n\n{found.bibtex}")
    return EXIT_COMPLETE
