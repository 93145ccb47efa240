"""Hosts of their own on this machine, for networks that go silent.

A process that is killed on the loopback interface always resets its connections. A host whose
packets go nowhere takes a network namespace behind a virtual cable, and a blackhole route.
"""

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_numbers = itertools.count(1)


class Node:
    """A host with an address; `run` starts programs on it."""

    def __init__(self, number: int) -> None:
        self.name = f"orch{os.getpid()}n{number}"
        self._cable = f"o{os.getpid()}n{number}"
        net = f"10.78.{os.getpid() % 256}"
        self._this_side, self.host = f"{net}.{4 * number + 1}", f"{net}.{4 * number + 2}"

    def run(self, argv: Sequence[str], **settings: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(("ip", "netns", "exec", self.name, *argv), **settings)

    def serve(self, *arguments: str, port: int = 8000) -> subprocess.Popen[Any]:
        """A fake server, ready; `url` is its address."""
        code = (
            f"import tests.fake.main as f; f.LOOPBACK = {self.host!r}; "
            f"raise SystemExit(f.main({['--port', str(port), *arguments]!r}))"
        )
        argv = (sys.executable, "-P", "-c", code)
        server = self.run(argv, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        assert server.stderr.readline().startswith("ready")
        return server

    @property
    def url(self) -> str:
        return f"http://{self.host}:8000"

    def vanish(self) -> None:
        """From here on its packets go nowhere: no FIN, no RST, no ICMP."""
        _ip("-n", self.name, "route", "add", "blackhole", f"{self._this_side}/32")

    def vanish_unknown(self) -> None:
        """Vanish as a host of this network: who asks for its hardware address gets no answer."""
        _ip("-n", self.name, "link", "set", "eth0", "arp", "off")
        self.vanish()
        _ip("neigh", "flush", "dev", self._cable)

    def deafen(self) -> None:
        """From here on no packet reaches it, and it can still send."""
        nobody = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
        _ip("neigh", "replace", self.host, *nobody, "dev", self._cable)

    def come_back(self) -> None:
        _ip("-n", self.name, "route", "del", "blackhole", f"{self._this_side}/32")

    def make(self) -> None:
        _ip("netns", "add", self.name)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("addr", "add", f"{self._this_side}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "addr", "add", f"{self.host}/30", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")

    def remove(self) -> None:
        # The cable may outlive the namespace while a connection lingers there.
        for command in (("netns", "del", self.name), ("link", "del", self._cable)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*command)


@contextlib.contextmanager
def nodes(n: int) -> Iterator[list[Node]]:
    """Some hosts, until the end of the block."""
    made = [Node(next(_numbers)) for _ in range(n)]
    try:
        for node in made:
            node.make()
        yield made
    finally:
        for node in made:
            node.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, timeout=60)
