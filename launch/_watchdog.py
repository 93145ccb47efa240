"""The parent of a server process: ends it when the program that asked for it is gone.

    orchestrator ──stdin pipe──▶ watchdog (own session) ──▶ server (own process group)

Run as a script with `python -I -S _watchdog.py GRACE_S HOST PORT ARGV…`.

Whoever else binds the server's port first would be answered for it and be sent its key. So it says
on stdout when the server's own processes, and nobody else, listen at HOST and PORT.
Where the server takes a socket (`LISTENING`), the port is never free.

On another machine, where a carrier has started it, it is run as `_watchdog.py --elsewhere`. Then
it first writes the address by which this machine is reached, a free port there, and its name; and
gets the rest as a line of JSON on stdin (`arguments` as above, and the environment `env`), so that
no key stands on a command line. There it ends the server also if it hears nothing for `lease_s`
seconds, because it is cut off from a client that has replaced it; a job that is for this server
alone, which nobody else may end now, is given back. It tells the client if the machine asks it to
end. Variables that the way there has changed win over the client's; `here` holds those that it
began with.

Where several machines share a model, each has a watchdog, and all hear the same: `arguments` has a
list for each rank. Whenever they hear from the client, they answer that their part lives, and they
tell its end. The one of rank 0 speaks for the server.

`_watchdog.py --with-parent PID COMMAND…` becomes the command, which gets SIGTERM when its parent
ends (Linux only).

Its stdin closes when the orchestrator ends in whatever way, `kill -9` included. It ends the
server's process group on that, on SIGTERM, told so on stdin, and when the server itself ends; told
on stdin to keep the server, it no longer minds the orchestrator's end; writes the server's pid to
stdout; sends the server's output to its own stderr; and ends with the server's exit
code or by the same signal. It uses only the standard library, so that it starts fast. The reasons
are in docs/design/0003-watchdog.md.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_S = 2.0
# Between two looks at who listens: the first and the longest.
_SEEK_S = 0.05
_LONGEST_SEEK_S = 1.0
_TCP_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LISTEN_STATE = "0A"
_ORPHAN_GRACE_S = 5.0
_NOT_STARTED = 127
KEEP = b"keep\n"
STOP = b"stop\n"
ELSEWHERE = "--elsewhere"
# Variables by which a carrier may say where this is.
ADDRESS = "ORCHESTRATOR_NODE_ADDRESS"
NAME = "ORCHESTRATOR_NODE_NAME"
# Variable of a carrier whose Slurm job is for this server alone.
OWN_JOB = "ORCHESTRATOR_OWN_JOB"
BEAT = b"beat\n"
# Variable with the number of a bound socket that the server inherits, to listen there.
LISTENING = "ORCHESTRATOR_LISTENING_FD"
# What it writes to stdout begins with these: a prolog or a shell's profile may write there too.
PLACED = b"orchestrator server at "
PID = b"orchestrator server pid "
LISTENS = b"orchestrator server listens"
PART = b"orchestrator server part "
LIVES, ENDS, TOLD = b"lives", b"ends", b"told to end"
WITH_PARENT = "--with-parent"
# Of a task of Slurm.
_RANK = "SLURM_PROCID"
# Of a shell, not of what it was told to set.
_OF_A_SHELL = frozenset(("_", "OLDPWD", "PWD", "SHLVL"))
_LONGEST_WORD = 8


def main(arguments: list[str]) -> NoReturn:
    """Run the server to its end, then end like it."""
    env: dict[str, str] | None = None
    lease_s: float | None = None
    part = (0, 1)
    if arguments[:1] == [WITH_PARENT]:
        _become(int(arguments[1]), arguments[2:])
    if arguments == [ELSEWHERE]:
        arguments, env, lease_s, part = _received()
    grace_s, host, port = float(arguments[0]), arguments[1], int(arguments[2])
    command = arguments[3:]
    shared = (os.environ if env is None else env).get(LISTENING)
    sockets = (int(shared),) if shared else ()
    # Readable when a signal comes; each byte is a signal number.
    wakeup, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (*_STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    parent = os.getppid()
    try:
        server = subprocess.Popen(  # noqa: S603 (no shell; the argv is built by a launch kind)
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            env=env,
            process_group=0,
            pass_fds=sockets,
            # Safe: this process has one thread. The server dies with it, if that is killed.
            preexec_fn=lambda: _with_parent(signal.SIGKILL),
        )
    except OSError as error:
        sys.stderr.write(f"can't start {command[0]}: {error}\n")
        sys.exit(_NOT_STARTED)
    os.write(sys.stdout.fileno(), PID + f"{server.pid}\n".encode())
    for descriptor in sockets:
        os.close(descriptor)
    listeners = _Listeners(server.pid, host, 0 if sockets else port)
    if sockets:
        listeners.tell()
    owner = _Owner(parent, lease_s, part)
    _watch(server.pid, wakeup, owner, listeners, grace_s)
    # The server is dead but not yet reaped, so its number still names its group and no other.
    _signal_group(server.pid, signal.SIGKILL)
    code = server.wait()
    if owner.is_past and OWN_JOB in os.environ:
        command = ["scancel", os.environ["SLURM_JOB_ID"]]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)  # noqa: S603 (no shell)
    # End with the server's exit code, or by the signal that ended it.
    if code >= 0:
        sys.exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    sys.exit(128 - code)


def _become(parent: int, command: list[str]) -> NoReturn:
    """Run a command in place of this program, and no longer than its parent runs."""
    _with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)  # it has ended before
    try:
        os.execvp(command[0], command)  # noqa: S606 (no shell; it is built by a carrier)
    except OSError as error:
        sys.stderr.write(f"can't start {command[0]}: {error}\n")
        sys.exit(_NOT_STARTED)


def _received() -> tuple[list[str], dict[str, str], float | None, tuple[int, int]]:
    """Tell where this is; return arguments, environment, lease, and which part of how many."""
    host = os.environ.get(ADDRESS)
    if not host:
        # The address by which the way to the client begins; nothing is sent.
        client = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or socket.gethostname()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((client, 9))
            host = probe.getsockname()[0]
    free = socket.socket()
    free.bind((host, 0))
    port = free.getsockname()[1]
    rank = int(os.environ.get(_RANK, "0"))
    name = os.environ.get(NAME) or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    os.write(sys.stdout.fileno(), PLACED + f"{host} {port} {name} {rank}\n".encode())
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(sys.stdin.fileno(), 65536)
        if not part:
            sys.exit(0)  # the client is gone
        line += part
    told = json.loads(line)
    here = told.get("here", {})
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_A_SHELL and here.get(name) != value
    }
    env = {**told["env"], **own}
    parts = told["arguments"]
    rank = rank if parts[1:] else 0
    if env.pop(LISTENING, "") and rank == 0:
        env[LISTENING] = str(free.detach())
    free.close()
    return parts[rank], env, told["lease_s"], (rank, len(parts))


def _with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends (Linux only)."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (needed only here, and slow to import)

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _watch(pid: int, wakeup: int, asks: "_Owner", listeners: "_Listeners", grace_s: float) -> None:
    """Return when the server has ended, by itself or because it was time."""
    owner: _Owner | None = asks
    deadline: float | None = None
    has_ended = False
    while not has_ended:
        # Without reaping it. Where all were told to end, it may have been the faster.
        has_ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        timeout_s = _LOOK_S if deadline is None else deadline - time.monotonic()
        if timeout_s <= 0:
            _signal_group(pid, signal.SIGKILL)
            timeout_s = _LOOK_S
        timeout_s = 0.0 if has_ended else min(timeout_s, listeners.look())
        watched = [wakeup] if owner is None else [wakeup, owner.pipe]
        readable = select.select(watched, [], [], timeout_s)[0]
        told = wakeup in readable and any(
            number in _STOP_SIGNALS for number in os.read(wakeup, 4096)
        )
        if told and deadline is None:
            asks.report(TOLD)
        is_gone = owner is not None and owner.is_gone()
        asks.is_past = asks.is_past or told or is_gone
        told = told or (owner is not None and owner.stops)
        if is_gone or (owner is not None and owner.lets_go):
            # A closed pipe stays readable for ever; from here on the clock and the child count.
            owner = None
        if deadline is None and (told or is_gone):
            deadline = time.monotonic() + (min(grace_s, _ORPHAN_GRACE_S) if is_gone else grace_s)
            _signal_group(pid, signal.SIGTERM)
    asks.report(ENDS)


class _Listeners:
    """Looks for the moment from which the server, and nobody else, is reached at its port.

    Args:
        pid: Of the server.
        host: Address that it is to listen at.
        port: Of that address; 0 if there is nothing to look for.
    """

    def __init__(self, pid: int, host: str, port: int) -> None:
        self._pid, self._host, self._port = pid, host, port
        self._wait_s = _SEEK_S

    def look(self) -> float:
        """Look, and return the seconds until it has to be done again."""
        if not self._port:
            return _LOOK_S
        try:
            found = listens(self._pid, socket.gethostbyname(self._host), self._port)
        except OSError as error:
            sys.stderr.write(f"can't tell who listens at {self._host}:{self._port}: {error}\n")
            self._port = 0
            return _LOOK_S
        if found:
            self.tell()
        self._wait_s = min(_LONGEST_SEEK_S, self._wait_s * 1.5)
        return self._wait_s

    def tell(self) -> None:
        """Say that it is so."""
        self._port = 0
        # Nobody may be left to hear it.
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), LISTENS + b"\n")


def listens(pid: int, address: str, port: int) -> bool:
    """Return True if a server is all that is reached at an address: its processes alone listen.

    Args:
        pid: Of the server, which leads a process group.
        address: IPv4 address.
        port: Its port.

    Raises:
        OSError: If this system does not tell.
    """
    if not Path(_TCP_TABLES[0]).exists():
        # Lists the processes of this user: two can't listen at one address.
        found = subprocess.run(  # noqa: S603 (no shell)
            ["lsof", "-nP", "-a", f"-iTCP@{address}:{port}", "-sTCP:LISTEN", "-Fg"],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        groups = {line[1:] for line in found.stdout.decode().splitlines() if line[:1] == "g"}
        return groups == {str(pid)}
    sockets = {f"socket:[{inode}]" for inode in _inodes(address, port)}
    if not sockets:
        return False
    for process in _family(pid):
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.discard(str(descriptor.readlink()))
    return not sockets


def _inodes(address: str, port: int) -> list[str]:
    """Return the sockets that listen at an IPv4 address and port, or at all addresses (Linux)."""
    # The kernel writes addresses as words in the machine's order of bytes.
    word = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    ends = {f"{word:08X}", "0" * 8, "0" * 32, f"{'0' * 16}{socket.htonl(0xFFFF):08X}{word:08X}"}
    found = []
    for table in map(Path, _TCP_TABLES):
        with contextlib.suppress(FileNotFoundError):
            for line in table.read_text("ascii").splitlines()[1:]:
                fields = line.split()
                host, _, number = fields[1].partition(":")
                if fields[3] == _LISTEN_STATE and int(number, 16) == port and host in ends:
                    found.append(fields[9])
    return found


def _family(pid: int) -> set[int]:
    """Return the processes of a server: those of its group, and their children (Linux)."""
    parents: dict[int, int] = {}
    found = {pid}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            # It may be gone by now.
            with contextlib.suppress(OSError):
                _, parent, group, *_ = (process / "stat").read_bytes().rpartition(b")")[2].split()
                parents[int(process.name)] = int(parent)
                if int(group) == pid:
                    found.add(int(process.name))
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


class _Owner:
    """The program that asked for the server, as it is seen from here."""

    def __init__(self, pid: int, lease_s: float | None, part: tuple[int, int]) -> None:
        self.pipe = sys.stdin.fileno()
        self.lets_go = False
        self.stops = False
        # Something else than it or the server itself has ended the server.
        self.is_past = False
        self._pid = pid
        self._lease_s, self._part = lease_s, part
        self._heard_at = time.monotonic()
        self._said = b""
        os.set_blocking(self.pipe, False)

    def report(self, word: bytes) -> None:
        """Tell an owner elsewhere of this part; of one that is alone, only `TOLD`."""
        rank, n = self._part
        if self._lease_s is not None and (n > 1 or word == TOLD):
            with contextlib.suppress(OSError):
                os.write(sys.stdout.fileno(), PART + b"%d %b\n" % (rank, word))

    def is_gone(self) -> bool:
        """Return True if it ended without having said that the server is to be kept."""
        # Before its pipe is read: what it wrote there last must count.
        has_ended = os.getppid() != self._pid
        try:
            said = os.read(self.pipe, 4096)
        except BlockingIOError:
            silent_s = time.monotonic() - self._heard_at
            return has_ended or (self._lease_s is not None and silent_s > self._lease_s)
        self._heard_at = time.monotonic()
        if said:
            self.report(LIVES)
        # A word may come in two parts.
        self._said = self._said[-_LONGEST_WORD:] + said
        if KEEP in self._said:
            self.lets_go = True
        if STOP in self._said:
            self.stops = True
        return not self.lets_go and (has_ended or not said)


def _signal_group(pid: int, number: signal.Signals) -> None:
    # EPERM is what macOS answers for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


if __name__ == "__main__":
    main(sys.argv[1:])
