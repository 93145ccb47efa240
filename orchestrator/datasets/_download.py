"""Files fetched once over HTTP: resumed, checked, put in place as a whole, their origin recorded.

A file of known SHA-256 is held to it. Of another the SHA-256 is recorded at the first download
(trust on first use) and it is held to that ever after. Beside a file `NAME` lies `NAME.origin.json`
with the address, the length, the SHA-256, the revision that the server named, and the time.
"""

import fcntl
import http.client
import logging
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from orchestrator.disk.files import sha256_of
from orchestrator.plugin import DatasetError

_log = logging.getLogger(__name__)
T = TypeVar("T")

_CHUNK: Final = 1024 * 1024
_MOST_BYTES: Final = 8 << 30
_ATTEMPTS: Final = 3
_SCHEMES: Final = ("http", "https")
_PARTIAL, _RANGE_WRONG = 206, 416
# Of the moment: the same request may do better later.
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
_BROKEN: Final = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
)
_UNITS: Final = ("bytes", "kB", "MB", "GB")


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be fetched.

    Attributes:
        url: http or https.
        sha256: Lower-case hex; empty where it is recorded at the first download.
        token: Sent as a bearer to this address alone, never on to another host; left out of repr.
        most_bytes: Longer files are not fetched.
    """

    url: str
    sha256: str = ""
    token: str = ""
    most_bytes: int = _MOST_BYTES

    def __repr__(self) -> str:
        return f"Remote({self.url!r})"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a file; its length in bytes and its SHA-256 when it was fetched."""

    url: str
    n_bytes: int
    sha256: str
    revision: str = ""
    fetched_at: str = ""


class Patience(msgspec.Struct, frozen=True):
    """Seconds to wait for a reply or the next bytes, and before a retry."""

    stall_s: float = 60.0
    pause_s: float = 1.0


class _PassingError(Exception):
    """Worth another attempt."""


class _RangeError(_PassingError):
    """The server can't go on from where a part ends."""


def fetched(remote: Remote, path: Path, patience: Patience | None = None) -> Path:
    """The file at `path`, downloaded first if it is not there.

    A download that stops half-way goes on where it stopped, also in a later call. Two processes
    don't fetch the same file at once.

    Raises:
        DatasetError: If it can't be had, or is not the file it should be.
    """
    if path.is_file():
        return verified(path, remote.sha256)
    if urlsplit(remote.url).scheme not in _SCHEMES:
        raise DatasetError(f"{remote.url}: only http and https addresses are supported")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not path.is_file():
                patience = patience or Patience()
                part = path.with_name(f"{path.name}.part")
                headers = _again(lambda: _attempt(remote, part, patience), remote.url, patience)
                found = sha256_of(part)
                if remote.sha256 and found != remote.sha256:
                    _drop(part)
                    raise DatasetError(
                        f"{remote.url}: the download has SHA-256 {found}, not {remote.sha256} as "
                        "published; it was discarded"
                    )
                origin = Origin(
                    url=remote.url,
                    n_bytes=part.stat().st_size,
                    sha256=found,
                    revision=headers.get("X-Repo-Commit", ""),
                    fetched_at=datetime.now(UTC).isoformat(timespec="seconds"),
                )
                # The record first: a file without one would be trusted whatever it holds.
                _write(_origin_path(path), msgspec.json.encode(origin))
                part.replace(path)
                _etag_path(part).unlink(missing_ok=True)
                held = (
                    ""
                    if remote.sha256
                    else f"; no checksum is published, so SHA-256 {found} is required from now on"
                )
                _log.info("%s: %s in %s%s", remote.url, shown_size(origin.n_bytes), path, held)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror or error}") from error
    return verified(path, remote.sha256)


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
        return msgspec.json.decode(_origin_path(path).read_bytes(), type=Origin)
    except (OSError, msgspec.MsgspecError):
        return None


def shown_size(n_bytes: int) -> str:
    """A length in bytes for people: 48.9 kB."""
    size, unit = float(n_bytes), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} bytes" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def _attempt(remote: Remote, part: Path, patience: Patience) -> HTTPMessage:
    have = part.stat().st_size if part.exists() else 0
    try:
        etag = _etag_path(part).read_text(encoding="utf-8")
    except (OSError, ValueError):
        etag = ""
    wanted = {"Range": f"bytes={have}-", "If-Range": etag} if have and etag else {}
    with _dropped_if_wrong(part), _opened(remote, wanted, patience) as reply:
        there = reply.headers.get("Content-Range") or ""
        goes_on = reply.status == _PARTIAL and there.startswith(f"bytes {have}-")
        have = have if goes_on else 0
        _write(_etag_path(part), (reply.headers.get("ETag") or "").encode())
        length = reply.headers.get("Content-Length")
        total = have + int(length) if length and length.isdecimal() else None
        size = "unknown size" if total is None else shown_size(total)
        _check_size(remote, part, total or have)
        _log.info("downloading %s (%s)%s", remote.url, size, ", resuming" if goes_on else "")
        with part.open("ab" if goes_on else "wb") as file:
            while chunk := reply.read(_CHUNK):
                have += len(chunk)
                _check_size(remote, part, have)
                file.write(chunk)
        if total is not None and have != total:
            raise _PassingError(f"the connection ended after {have:,} of {total:,} bytes")
        headers: HTTPMessage = reply.headers
        return headers


def _check_size(remote: Remote, part: Path, n_bytes: int) -> None:
    """Drop the part of a file that is longer than allowed."""
    if n_bytes > remote.most_bytes:
        _drop(part)
        most = shown_size(remote.most_bytes)
        raise DatasetError(f"{remote.url}: longer than {most}; the download was discarded")


@contextmanager
def _opened(
    remote: Remote, headers: Mapping[str, str], patience: Patience
) -> Iterator[http.client.HTTPResponse]:
    """A reply with a status that is good; what is wrong is sorted into passing and not."""
    request = urllib.request.Request(  # noqa: S310 (the scheme was looked at)
        remote.url,
        headers={
            "User-Agent": "selfeval-orchestrator",
            "Accept-Encoding": "identity",
            **headers,
        },
    )
    if remote.token:
        request.add_unredirected_header("Authorization", f"Bearer {remote.token}")
    try:
        with _opener.open(request, timeout=patience.stall_s) as reply:
            yield reply
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _PASSING or error.code == _RANGE_WRONG:
            kind = _RangeError if error.code == _RANGE_WRONG else _PassingError
            raise kind(f"the server replied {error.code} {error.reason}") from error
        said = f"{remote.url}: the server replied {error.code} {error.reason}"
        if error.code in {401, 403}:
            said += "; a gated dataset needs your consent and HF_TOKEN in the environment"
        raise DatasetError(said) from error
    except _BROKEN as error:
        reason = getattr(error, "reason", None) or error
        raise _PassingError(str(reason) or type(error).__name__) from error


def _again(call: Callable[[], T], url: str, patience: Patience) -> T:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return call()
        except _PassingError as error:
            if attempt == _ATTEMPTS:
                raise DatasetError(
                    f"{url}: cannot be downloaded: {error}; resume with the same command"
                ) from error
            _log.info("%s: %s; retrying", url, error)
            time.sleep(patience.pause_s * attempt)
    raise AssertionError


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


_opener: Final = urllib.request.build_opener(_Redirects)


@contextmanager
def _dropped_if_wrong(part: Path) -> Iterator[None]:
    """Delete a part that the server can't continue, so that the next attempt starts over."""
    try:
        yield
    except _RangeError:
        _drop(part)
        raise


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


def _origin_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.origin.json")


def _etag_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def _drop(part: Path) -> None:
    for path in (part, _etag_path(part)):
        with suppress(FileNotFoundError):
            path.unlink()
