"""Telling a network that has gone silent from a server that takes its time.

A reply may take minutes, so that nothing comes says nothing about the server. Its kernel answers
TCP's own questions meanwhile, however busy the server is: keepalive probes where all that was sent
has arrived, retransmissions where it has not. A machine that is gone answers neither.

Linux can end a connection whose data stays unacknowledged (TCP_USER_TIMEOUT), but ends it too where
the other side acknowledges and has no room: llama.cpp leaves the requests that wait for a slot
unread. So connections of aiohttp are looked at with TCP_INFO, which tells the two apart.

That packets come is no sign either: a machine that our packets do not reach sends its last reply
again and again, as it hears no acknowledgement.
"""

import errno
import logging
import socket
import struct
from functools import cache
from typing import Final, Protocol

IDLE_S: Final = 5
"""A connection on which nothing has come for so long is probed."""
INTERVAL_S: Final = 3
PROBES: Final = 3
SILENT_S: Final = float(IDLE_S + INTERVAL_S * PROBES)
"""A server that has answered nothing for so long, not even a probe, is out of reach."""
UNREAD_S: Final = 20
"""With TCP_USER_TIMEOUT: data that the other side does not take for so long ends a connection."""

UNREACHABLE: Final = frozenset(
    (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
)
"""Numbers of the errors by which a kernel says that nobody answers."""

# Of Linux's `struct tcp_info`, whose layout only ever grows at the end: retransmissions and probes
# without an answer so far, and milliseconds since the last segment with an acknowledgement.
_INFO: Final = struct.Struct("=2xBB52xI")
# Bytes acknowledged so far, segments received, and those of them that carry data (Linux 4.6).
_RECEIVED: Final = struct.Struct("=120xQ12xI8xI")
# One may be under way just now.
_MOST_PROBES: Final = 1

Option = tuple[int, int, int]

_log = logging.getLogger(__name__)


class Socket(Protocol):
    """A socket, or the object that an event loop gives for one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """See `socket.socket`."""
        ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """See `socket.socket`."""
        ...


def keepalive_options() -> list[Option]:
    """Level, name and value of the options by which a kernel ends silent connections."""
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    wanted = (
        (idle, IDLE_S),
        (getattr(socket, "TCP_KEEPINTVL", None), INTERVAL_S),
        (getattr(socket, "TCP_KEEPCNT", None), PROBES),
    )
    known = [(socket.IPPROTO_TCP, name, value) for name, value in wanted if name is not None]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *known]


def all_options() -> list[Option]:
    """Those and TCP_USER_TIMEOUT, for clients whose sockets can't be looked at."""
    name = getattr(socket, "TCP_USER_TIMEOUT", None)
    unread = [] if name is None else [(socket.IPPROTO_TCP, name, UNREAD_S * 1000)]
    return [*keepalive_options(), *unread]


def set_options(sock: Socket, options: list[Option]) -> None:
    """Set options on a socket; one that can't be set is said once."""
    try:
        for level, name, value in options:
            sock.setsockopt(level, name, value)
    except OSError as error:
        _warn_once(str(error))


class Watch:
    """Watches one connection for silence, by looks at its socket every few seconds."""

    def __init__(self) -> None:
        self._answered: tuple[int, int] | None = None
        self._since_s = 0.0

    def is_silent(self, sock: Socket, now_s: float) -> bool:
        """Return whether the other side has acknowledged nothing for `SILENT_S` although asked to.

        False where the kernel can't tell: there keepalive and deadlines are all there is.

        Args:
            sock: The connection's.
            now_s: The time, by a monotonic clock.
        """
        info = _info_of(sock)
        if len(info) < _INFO.size:
            return False
        n_sent_again, n_probes, since_ms = _INFO.unpack_from(info)
        is_quiet = since_ms > SILENT_S * 1000
        if not n_sent_again:
            self._answered = None
            return bool(is_quiet and n_probes > _MOST_PROBES)
        return is_quiet or self._has_waited(info, now_s)

    def _has_waited(self, info: bytes, now_s: float) -> bool:
        """Return whether looks have found the same data unacknowledged for `SILENT_S`."""
        if len(info) < _RECEIVED.size:
            return False
        n_bytes, n_segments, n_with_data = _RECEIVED.unpack_from(info)
        # A kernel that gets a retransmission answers with a segment that carries no data.
        answered = (n_bytes, n_segments - n_with_data)
        if answered != self._answered:
            self._answered, self._since_s = answered, now_s
        return now_s - self._since_s > SILENT_S


def _info_of(sock: Socket) -> bytes:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return b""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, option, _RECEIVED.size)
    except OSError:
        return b""


@cache
def _warn_once(said: str) -> None:
    _log.warning(
        "cannot set TCP keepalive (%s): a silent network failure is detected only after "
        "limits.timeout_s",
        said,
    )
