"""One reply a request: a reply that comes twice must not become another request's.

HTTP/1.1 does not say to which request a reply belongs. A server, or a proxy before it, that sends
one again on a connection that is kept would shift all later replies on it by one.
"""

import re
from typing import Final

from orchestrator.records import Failure

REPEATED: Final = Failure(
    "connection", "the server sent the reply to an earlier request once more; it is not taken"
)
_ID: Final = re.compile(rb'"id":\s?"([^"\\]{1,200})"')
_HEAD: Final = 512
_MOST_KEPT: Final = 1024


class Repeats:
    """The last replies of one server, each with the request that it answered.

    Equal replies to different requests are one that came twice where the server numbers its
    replies (`id`); where it doesn't, they may be as equal as they look.
    """

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._last_id = b""
        self._numbers = False

    def is_repeat(self, request: bytes, body: bytes) -> bool:
        """Return True if a reply answered another request before."""
        found = _ID.search(body, 0, _HEAD)
        if found is None:
            return False
        self._numbers |= self._last_id not in (b"", found[1])
        self._last_id = found[1]
        asked = hash(request)
        before = self._asked.setdefault(hash(body), asked)
        if len(self._asked) > _MOST_KEPT:
            del self._asked[next(iter(self._asked))]
        return self._numbers and before != asked
