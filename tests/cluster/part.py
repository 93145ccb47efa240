"""A part of a server of several machines, which starts and ends as those of vLLM and SGLang do.

    python -m tests.cluster.part RANK N HOST PORT COMMAND…

All connect to the part of rank 0, at HOST and PORT. Once they have, that one runs the server's
command; a part ends when its connection does, or the command.
"""

import os
import selectors
import socket
import subprocess
import sys
import time

from launch._watchdog import LISTENING

# For the part of rank 0 to listen.
_TRY_S = 60.0


def main(rank: int, n: int, address: tuple[str, int], command: list[str]) -> int:
    """Run to the end of this part; its exit code."""
    if rank:
        with _connected(address) as master:
            sys.stderr.write(f"part {rank} of {n} is connected\n")
            master.recv(1)
        return 1
    with socket.create_server(address) as listener:
        parts = [listener.accept()[0] for _ in range(n - 1)]
    given = [int(os.environ[LISTENING])] if LISTENING in os.environ else []
    with subprocess.Popen(command, pass_fds=given) as server:
        with selectors.DefaultSelector() as selector:
            for part in parts:
                selector.register(part, selectors.EVENT_READ)
            while server.poll() is None and not selector.select(0.2):
                pass
        server.terminate()
    return server.returncode or 1


def _connected(address: tuple[str, int]) -> socket.socket:
    end = time.monotonic() + _TRY_S
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    rank, n, host, port, *command = sys.argv[1:]
    sys.exit(main(int(rank), int(n), (host, int(port)), command))
