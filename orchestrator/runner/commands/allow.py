"""`orchestrator allow`: folders whose recipes may run code."""

import argparse
import json
import sys

from orchestrator.disk.paths import expanded
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.plugins import permission
from orchestrator.report.text import confirm, safe_line, write_to


def allow(options: argparse.Namespace) -> int:
    """Allow a folder, take that back, or list the allowed folders.

    Raises:
        UsageError: If the folder can't be allowed, or is not.
    """
    if options.list:
        if options.revoke or options.folder is not None:
            raise UsageError("--list takes neither a folder nor --revoke")
        found = [str(one) for one in permission.allowed()]
        if options.json:
            write_to(sys.stdout, json.dumps(found) + "\n")
        for line in () if options.json else found:
            write_to(sys.stdout, safe_line(line) + "\n")
        return EXIT_COMPLETE
    if options.json:
        raise UsageError("--json goes with --list")
    folder = expanded(options.folder or ".")
    if options.revoke:
        confirm(f"{permission.revoke(folder)}: recipes and runs in it need --allow-code again")
    else:
        confirm(
            f"{permission.allow(folder)}: recipes and runs in it may run code and programs "
            "that they name; revoke with: orchestrator allow --revoke"
        )
    return EXIT_COMPLETE
