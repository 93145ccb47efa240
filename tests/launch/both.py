"""A carrier's command for servers of several machines, all of which are this one.

    python both.py N COMMAND…

Runs the command N times, with a rank and a name for each. All get what comes on stdin, and it ends
when they have.
"""

import os
import subprocess
import sys
import threading


def main(n: int, command: list[str]) -> None:
    """Run to the end of all."""
    parts = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=os.environ | {"SLURM_PROCID": str(rank), "SLURMD_NODENAME": f"n{rank}"},
        )
        for rank in range(n)
    ]
    threading.Thread(target=_pass_on, args=(parts,), daemon=True).start()
    for part in parts:
        part.wait()


def _pass_on(parts: list[subprocess.Popen[bytes]]) -> None:
    while said := os.read(0, 65536):
        for part in parts:
            try:
                assert part.stdin is not None
                os.write(part.stdin.fileno(), said)
            except BrokenPipeError:
                continue
    for part in parts:
        assert part.stdin is not None
        part.stdin.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
