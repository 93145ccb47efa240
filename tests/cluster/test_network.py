"""What of a node's packets passes, silent or deaf."""

import socket
import subprocess
import sys

import pytest

from tests.cluster.network import Network

_PORT = 4000
# For a packet that comes, and for one that does not.
_LONG_S, _SHORT_S = 20.0, 0.5
_SENDS = f"""
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as sock:
    sock.sendto(b"from the node", (sys.argv[1], {_PORT}))
"""
_HEARS = f"""
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as sock:
    sock.bind(("0.0.0.0", {_PORT}))
    print("ready", flush=True)
    sock.settimeout(float(sys.argv[1]))
    print(sock.recv(99))
"""


@pytest.fixture(scope="module")
def network():
    with Network(81, ["n1", "n2"]) as made:
        yield made


def is_heard(network, node, wait_s=_LONG_S):
    """Return whether a packet of a node arrives here."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind((network.host, _PORT))
        sock.settimeout(wait_s)
        argv = [*network.inside(node), sys.executable, "-c", _SENDS, network.host]
        subprocess.run(argv, check=False, timeout=60)
        try:
            return sock.recv(99) == b"from the node"
        except TimeoutError:
            return False


def hears(network, node, wait_s=_LONG_S):
    """Return whether a packet from here arrives at a node."""
    argv = [*network.inside(node), sys.executable, "-c", _HEARS, str(wait_s)]
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
        socket.socket(type=socket.SOCK_DGRAM) as sock,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        sock.sendto(b"to the node", (network.address(node), _PORT))
        return process.stdout.read() == b"b'to the node'\n"


# The bridge has the address of one of its ports, so each is tried.
@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize(
    ("lose", "passes"),
    [(Network.silence, (False, False)), (Network.deafen, (False, True))],
)
def test_what_passes_of_the_packets_of_a_node(network, node, lose, passes):
    assert (hears(network, node), is_heard(network, node)) == (True, True)
    lose(network, node)
    waits = [_LONG_S if does else _SHORT_S for does in passes]
    assert (hears(network, node, waits[0]), is_heard(network, node, waits[1])) == passes
    network.reconnect(node)
    assert (hears(network, node), is_heard(network, node)) == (True, True)
