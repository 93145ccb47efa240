"""A docker of three commands: containers outlive a client that is killed, and ignore SIGTERM."""

import os
import signal
import subprocess
import sys
from pathlib import Path

CONTAINERS = Path(os.environ["DOCKER_CONFIG"])
STUB = Path(__file__).with_name("stub_server.py")


def run(arguments: list[str]) -> int:
    given = dict(word.split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
    port = given["--publish"].split(":")[1]
    container = subprocess.Popen(
        [sys.executable, str(STUB), "--port", port, "--model", "/model", "--stubborn"],
        env={**os.environ, "ORCHESTRATOR_SERVER_KEY": os.environ["API_KEY"]},
        start_new_session=True,
    )
    (CONTAINERS / given["--name"]).write_text(str(container.pid))
    signal.signal(signal.SIGTERM, lambda *_: container.terminate())
    return container.wait()


def remove(name: str) -> int:
    pid = int((CONTAINERS / name).read_text())
    (CONTAINERS / name).unlink()
    os.kill(pid, signal.SIGKILL)
    return 0


def port(name: str) -> int:
    return 0 if (CONTAINERS / name).exists() else 1


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    match what:
        case "run":
            sys.exit(run(rest))
        case "port":
            sys.exit(port(rest[0]))
        case _:
            sys.exit(remove(rest[-1]))
