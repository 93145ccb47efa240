"""Run a module of our packages: `python -m orchestrator.plugins MODULE ARGUMENT…`.

It is found where `orchestrator` itself lies, whatever other `backends` or `launch` is on the path.
"""

import runpy
import sys

from orchestrator.plugins import OWN_PACKAGES, claim


def main(arguments: list[str]) -> None:
    """Run a module of `backends` or `launch` as `python -m` would, with the other arguments."""
    for name in OWN_PACKAGES:
        claim(name)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
