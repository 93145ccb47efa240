"""Nodes of a cluster on this machine: network namespaces with addresses of their own.

A server on a node has an address that is not this machine's, a node can fall silent, and all that
runs on one is known by its namespace. Takes root.
"""

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

# Names and addresses are a network's own: the kernel takes a while to delete the devices of one.
_NUMBERS: Final = itertools.count()
# States of a port of a bridge; one that listens lets only the spanning tree protocol pass.
_LISTENING: Final = "1"
_FORWARDING: Final = "3"


class Network:
    """Nodes behind a bridge, until the end of the block.

    Args:
        second: Second number of the addresses, such as 79.
        nodes: Their names, of few characters.

    Attributes:
        host: Address of this machine among them.
    """

    def __init__(self, second: int, nodes: Sequence[str]) -> None:
        number = next(_NUMBERS)
        taken = _ip("-oneline", "address")
        first = 5 * os.getpid() + number
        prefixes = (f"10.{second}.{(first + more) % 250}" for more in range(250))
        # Another process may have one of the same number.
        self._prefix = next(prefix for prefix in prefixes if f" {prefix}.1/" not in taken)
        self._nodes = [*nodes]
        self._bridge = f"ob{os.getpid()}{chr(ord('a') + number % 26)}"
        self._stack = contextlib.ExitStack()
        self.host = f"{self._prefix}.1"

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            # With a delay the kernel opens a port by itself that is closed soon after it was made.
            _ip("link", "add", self._bridge, "type", "bridge", "forward_delay", "0")
            stack.callback(_ip, "link", "del", self._bridge)
            _ip("addr", "add", f"{self.host}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for node in self._nodes:
                self._add(node, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, node: str, stack: contextlib.ExitStack) -> None:
        namespace, cable = self.namespace(node), self._cable(node)
        _ip("netns", "add", namespace)
        stack.callback(_ip, "netns", "del", namespace)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", cable, "master", self._bridge)
        _ip("link", "set", cable, "up")
        inside = ("-n", namespace)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")

    def address(self, node: str) -> str:
        """Address of a node."""
        return f"{self._prefix}.{10 + self._nodes.index(node) + 1}"

    def namespace(self, node: str) -> str:
        """Name of the network namespace of a node."""
        return f"{self._bridge}{node}"

    def inside(self, node: str) -> list[str]:
        """Beginning of a command line that runs on a node."""
        # `ip netns exec` would hide the control groups, which slurmd looks for.
        return ["nsenter", f"--net=/run/netns/{self.namespace(node)}"]

    def silence(self, node: str) -> None:
        """Let no packet from or to a node pass; nobody knows its hardware address any more."""
        # The port stays: the bridge has its lowest port's address, and takes another without it.
        # This machine would then answer on the port itself, and hear the node.
        self._set_port(node, _LISTENING)
        self._forget(node)

    def deafen(self, node: str) -> None:
        """Let no packet of this machine reach a node, whose own packets still arrive."""
        nobody = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
        _ip("neigh", "replace", self.address(node), *nobody, "dev", self._bridge)

    def reconnect(self, node: str) -> None:
        """Let all packets from and to a node pass again."""
        self._set_port(node, _FORWARDING)
        self._forget(node)

    def _set_port(self, node: str, state: str) -> None:
        _ip("link", "set", self._cable(node), "type", "bridge_slave", "state", state)

    def _forget(self, node: str) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("neigh", "del", self.address(node), "dev", self._bridge)

    def processes(
        self, nodes: Collection[str] = (), but: Collection[int] = ()
    ) -> list[psutil.Process]:
        """Processes that run on some nodes, or on any, without those with the numbers `but`."""
        namespaces = {self._number(name) for name in nodes or self._nodes}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if process.pid not in but and _net_of(process.pid) in namespaces:
                    found.append(process)
        return found

    def _cable(self, node: str) -> str:
        return f"o{self._bridge[2:]}{node}"

    def _number(self, node: str) -> int:
        return Path("/run/netns", self.namespace(node)).stat().st_ino


@functools.cache
def lacks_network() -> bool:
    """Return True if this user can't make one."""
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("ip", "nsenter")):
        return True
    name = f"orch{os.getpid()}"
    try:
        for kind in (("link", name, "type", "bridge"), ("netns", name)):
            _ip(kind[0], "add", *kind[1:])
            _ip(kind[0], "del", name)
    except subprocess.CalledProcessError:
        return True
    return False


def _net_of(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def _ip(*words: str) -> str:
    ended = subprocess.run(("ip", *words), check=True, capture_output=True, text=True, timeout=60)
    return ended.stdout
