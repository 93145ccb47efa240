"""The port of the viewer."""

import socket

from orchestrator.view import serve


def test_a_link_can_be_opened_as_soon_as_it_is_printed():
    with serve._opened(0) as listening:
        socket.create_connection(listening.getsockname(), timeout=5).close()
