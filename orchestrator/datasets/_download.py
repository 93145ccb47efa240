"""Files fetched once over HTTP: checked, put in place as a whole, their origin recorded.

A file of known SHA-256 is held to it. Of another the SHA-256 is recorded at the first download
(trust on first use) and it is held to that ever after. Beside a file `NAME` lies `NAME.origin.json`
with the address, the length, the SHA-256, the revision that the server named, and the time.
"""

import fcntl
import hashlib
import http.client
import logging
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_incrementing

from orchestrator import numbers
from orchestrator.disk import files
from orchestrator.disk.files import sha256_of
from orchestrator.plugin import DatasetError

_log = logging.getLogger(__name__)

_CHUNK: Final = 1024 * 1024
MOST_BYTES = 8 << 30
"""Longer files are not fetched."""
_ATTEMPTS: Final = 3
_ORIGIN: Final = ".origin.json"
STALL_S = 60.0
"""Seconds to wait for a reply or the next bytes."""
PAUSE_S = 1.0
"""Seconds before the first retry; twice as long before the next."""
_SCHEMES: Final = ("http", "https")
# The same request may do better later.
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_BROKEN: Final = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a file; its length in bytes and its SHA-256 when it was fetched."""

    url: str
    n_bytes: int
    sha256: str
    revision: str = ""
    fetched_at: str = ""


class _TransientError(Exception):
    """Worth another attempt."""


def fetched(url: str, path: Path, sha256: str = "", token: str = "") -> Path:
    """The file at `path`, downloaded first if it is not there.

    Two processes don't fetch the same file at once.

    Args:
        url: http or https.
        path: Where it is put.
        sha256: Lower-case hex; empty where it is recorded at the first download.
        token: Sent as a bearer to this address alone, never on to another host.

    Raises:
        DatasetError: If it can't be had, or is not the file it should be.
    """
    if path.is_file():
        return verified(path, sha256)
    if urlsplit(url).scheme not in _SCHEMES:
        raise DatasetError(f"{url}: only http and https addresses are supported")
    attempts = Retrying(
        retry=retry_if_exception_type(_TransientError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_incrementing(PAUSE_S, PAUSE_S),
        before_sleep=lambda state: _log.info(
            "%s: %s; retrying", url, state.outcome and state.outcome.exception()
        ),
        reraise=True,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not path.is_file():
                attempts(_fetch, url, path, sha256, token)
    except _TransientError as error:
        raise DatasetError(f"{url}: cannot be downloaded: {error}") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror or error}") from error
    return verified(path, sha256)


def verified(path: Path, sha256: str = "") -> Path:
    """The path, if the file is what it should be, or what it was when it was fetched.

    Raises:
        DatasetError: If it is not.
    """
    origin = origin_of(path)
    expected = sha256 or (origin.sha256 if origin else "")
    if expected and (found := sha256_of(path)) != expected:
        held = "published" if sha256 else "first fetched"
        raise DatasetError(
            f"{path}: SHA-256 is {found}, but that of the file {held} is {expected}; delete it "
            "to download it again"
        )
    return path


def origin_of(path: Path) -> Origin | None:
    """Return the record made when the file was fetched; None if it can't be read."""
    try:
        return msgspec.json.decode(
            path.with_name(f"{path.name}{_ORIGIN}").read_bytes(), type=Origin
        )
    except (OSError, msgspec.MsgspecError):
        return None


def _fetch(url: str, path: Path, sha256: str, token: str) -> None:
    """Download a file once, and put it in place if it is the one that it should be."""
    n_bytes, digest = 0, hashlib.sha256()
    with _opened(url, token) as reply, files.replacing(path) as file:
        length = reply.headers.get("Content-Length")
        total = int(length) if length and length.isdecimal() else None
        size = "unknown size" if total is None else numbers.size(total)
        _check_size(url, total or 0)
        _log.info("downloading %s (%s)", url, size)
        while chunk := reply.read(_CHUNK):
            n_bytes += len(chunk)
            _check_size(url, n_bytes)
            digest.update(chunk)
            file.write(chunk)
        if total is not None and n_bytes != total:
            raise _TransientError(f"the connection ended after {n_bytes:,} of {total:,} bytes")
        found = digest.hexdigest()
        if sha256 and found != sha256:
            raise DatasetError(
                f"{url}: the download has SHA-256 {found}, not {sha256} as "
                "published; it was discarded"
            )
        origin = Origin(
            url=url,
            n_bytes=n_bytes,
            sha256=found,
            revision=reply.headers.get("X-Repo-Commit", ""),
            fetched_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        # The record first: a file without one would be trusted whatever it holds.
        files.write(path.with_name(f"{path.name}{_ORIGIN}"), msgspec.json.encode(origin))
    held = f"; no checksum is published, so SHA-256 {found} is required from now on"
    _log.info("%s: %s in %s%s", url, numbers.size(n_bytes), path, "" if sha256 else held)


def _check_size(url: str, n_bytes: int) -> None:
    if n_bytes > MOST_BYTES:
        most = numbers.size(MOST_BYTES)
        raise DatasetError(f"{url}: longer than {most}; the download was discarded")


@contextmanager
def _opened(url: str, token: str) -> Iterator[http.client.HTTPResponse]:
    """A reply with a status that is good; what is wrong is sorted into transient and not."""
    request = urllib.request.Request(  # noqa: S310 (the scheme was looked at)
        url, headers={"User-Agent": "selfeval-orchestrator", "Accept-Encoding": "identity"}
    )
    # As for servers, `ALL_PROXY` counts and SOCKS proxies don't.
    given = urllib.request.getproxies()
    named = {scheme: given.get(scheme) or given.get("all", "") for scheme in _SCHEMES}
    used = {scheme: one for scheme, one in named.items() if one and not one.startswith("socks")}
    opener = urllib.request.build_opener(_Redirects, urllib.request.ProxyHandler(used))
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with opener.open(request, timeout=STALL_S) as reply:
            yield reply
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _TRANSIENT:
            raise _TransientError(f"the server replied {error.code} {error.reason}") from error
        said = f"{url}: the server replied {error.code} {error.reason}"
        if error.code in {401, 403}:
            said += "; a gated dataset needs your consent and HF_TOKEN in the environment"
        raise DatasetError(said) from error
    except _BROKEN as error:
        reason = getattr(error, "reason", None) or error
        raise _TransientError(str(reason) or type(error).__name__) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to http and https only, and never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in _SCHEMES or (req.type == "https" and scheme != "https"):
            fp.close()
            raise DatasetError(
                f"{req.full_url}: redirects to an address that is not allowed: {scheme}"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the right to fetch this file; waits for another process that does."""
    lock = path.with_name(f"{path.name}.lock")
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
