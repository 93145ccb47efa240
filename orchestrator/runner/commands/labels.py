"""`orchestrator labels`: write a sheet for human labels."""

import argparse
import json
import sys
from pathlib import Path

from orchestrator import numbers
from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.text import safe_line, write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path
from orchestrator.runner.commands.messages import Said
from orchestrator.runner.interface.labelling import Draw, draw_sheet, write_sheet


def labels(options: argparse.Namespace) -> int:
    """Write a sheet and its key file, and say how to fill it in."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    if warning := result.completeness.words():
        Said().complain(warning)
    draw = Draw(options.method, options.n, options.seed, options.by)
    sheet = draw_sheet(result, draw)
    path, key = write_sheet(sheet, Path(options.to), force=options.force)
    what, form = ("pair", "1, 2 or tie") if sheet.is_pairs else ("answer", "a number")
    analysis = {"kind": "human_labels", "labels": str(path), "method": sheet.method}
    lines = [
        f"{path}: {numbers.counted(len(sheet.rows), what)} of {numbers.count(sheet.n_judged)}; "
        f"write {form} into the column 'label', from the top, and stop where you like",
        f"{key}: the models of each row; keep it beside the sheet, and do not show it to labellers",
        "then add this to the recipe, and run it again:",
        f"  analyses: [{json.dumps(analysis, ensure_ascii=False)}]",
    ]
    write_to(sys.stdout, "".join(f"{safe_line(line)}\n" for line in lines))
    return EXIT_COMPLETE
