"""The viewer, as a browser asks it."""

import json
import re
import urllib.request
from http.cookiejar import CookieJar
from typing import Any


class Viewer:
    """A viewer that runs, entered by the address that it printed.

    Args:
        said: Its output.
    """

    def __init__(self, said: str) -> None:
        link = re.search(r"^open ((http://127\.0\.0\.1:\d+)/\?token=\S+)$", said, re.MULTILINE)
        assert link, f"the viewer has printed no address:\n{said}"
        self._url = link[2]
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        with self._opener.open(link[1], timeout=60) as page:
            assert page.status == 200

    def json(self, path: str) -> Any:
        """The answer of a path."""
        with self._opener.open(self._url + path, timeout=60) as reply:
            return json.load(reply)
