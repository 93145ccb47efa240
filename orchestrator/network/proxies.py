"""Proxies of the environment, for aiohttp.

aiohttp's own `trust_env` also reads `~/.netrc` and sends what stands there to servers, so it stays
off, and what remains of it is done here.
"""

import logging
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from orchestrator.backend import is_private

log = logging.getLogger(__name__)


def proxy_of(base_url: str) -> str | None:
    """The proxy that `HTTP_PROXY` or `HTTPS_PROXY` names for a server; None for none.

    Servers on this machine or in a private network are always reached without one, and so are
    those that `NO_PROXY` lists.
    """
    parts = urlsplit(base_url)
    if is_private(base_url) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    found = getproxies().get(parts.scheme)
    if found is None:
        return None
    if urlsplit(found).scheme != "http":
        log.warning("ignoring the proxy for %s: only http:// proxies are supported", parts.hostname)
        return None
    return found
