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
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._n_replies = self._n_numbers = 0

    def is_repeat(self, request: bytes, body: bytes) -> bool:
        """Return True if a reply answered another request before."""
        found = _ID.search(body, 0, _HEAD)
        if found is None:
            return False
        number, seen = found[1], (hash(body), hash(request))
        self._n_replies += 1
        before = self._seen.setdefault(number, seen)
        if before is seen:
            self._n_numbers += 1
            if len(self._seen) > _MOST_KEPT:
                del self._seen[next(iter(self._seen))]
            return False
        # Gateways may write one of a few names for a number.
        is_numbering = 2 * self._n_numbers > self._n_replies
        return is_numbering and before[0] == seen[0] and before[1] != seen[1]
