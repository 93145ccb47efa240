"""Runs SGLang's server with the key that it finds in its environment.

SGLang takes its key on the command line only, where every user of the machine can read it. This
file is run by SGLang's own interpreter, so it imports nothing of ours.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    key = os.environ.pop("ORCHESTRATOR_SERVER_KEY", "")
    if key:
        sys.argv += ["--api-key", key]
    # Its folder comes first on the module path, where a `sglang.py` of ours lies.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [path for path in sys.path if path != here]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
