"""The process: where it listens, who may see its pages, what it prints, and how it ends."""

import asyncio
import contextlib
import re
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.contracts.context import bundled
from orchestrator.disk import files
from orchestrator.errors import UsageError, on_disk_error
from orchestrator.report.text import safe_line, write_to
from orchestrator.runner.servers.registry import state_folder
from orchestrator.view.app import make_app
from orchestrator.view.labelling import Sheet
from orchestrator.view.library import Library

# Access to the pages: only this machine's browser, after it has shown a token given to it.
#
# The server listens on the loopback interface only, but any page in the same browser can send
# requests there, and any name can be made to resolve to 127.0.0.1. So the Host and Origin headers
# and what the browser says about where a request comes from are checked before anything else. The
# port of the Host header may be any: it is another one behind `ssh -L`, and no attacker gains by
# it. The token of the link is good once; what is kept is a cookie that scripts can't read and that
# other sites' requests don't carry. All is read-only but labels of the sheet that `--labels` names,
# which take the cookie, an Origin that is ours and a content type that no form of another site can
# send.


TOKEN: Final = "token"  # noqa: S105 (the name of a parameter)
LABELS: Final = "/api/labels/"
"""Addresses below which labels are written, if a sheet was named on the command line."""
_NOTES: Final = re.compile(r"/api/runs/[^/]+/items/[0-9]+/notes")
POLICY: Final = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    # Nothing in the page may turn text into markup, whatever it says.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::([0-9]{1,5}))?")
_HTTP_PORT: Final = 80
_MAX_PORT: Final = 65_535
_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>orchestrator view</title>"
    "{head}<h1>orchestrator view</h1><p>{text}</p></html>"
)
_ENTER: Final = (
    "This page is private. Open the link that <code>orchestrator view</code> printed; each "
    "link works once. If this browser was already admitted, <a href='{path}'>continue</a>."
)


class Guard:
    """Middleware that lets only requests of this machine's own page through.

    Attributes:
        token: Good once, in the link that `announce` is called with.
        session: What a token is exchanged for.
    """

    def __init__(
        self, app: ASGIApp, announce: Callable[[str], None], *, writes: bool = False
    ) -> None:
        self._app = app
        self._announce = announce
        self._writes = writes
        self.token = ""
        self.session = secrets.token_urlsafe(32)

    def begin(self) -> None:
        """Make a token."""
        self.token = secrets.token_urlsafe(24)
        self._announce(self.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server for each request."""
        if scope["type"] != "http":
            return
        answer = self._refusal(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._app if answer is None else answer)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response that refuses a request; None for a request that may pass."""
        headers = Headers(scope=scope)
        is_visit = headers.get("sec-fetch-mode", "navigate") == "navigate"
        # This server's own page would never send the first three
        host = headers.get("host", "")
        # The port that the browser connected to.
        found = _HOST.fullmatch(host)
        port = int(found[1] or _HTTP_PORT) if found is not None else 0
        if found is None or port > _MAX_PORT:
            return _refused(421, "unknown host name for this server")
        # Cookies of all ports of a host are in one jar; several viewers may be forwarded to it.
        cookie = f"orchestrator-view-{port}"
        path = scope["path"]
        is_writable = self._writes if path.startswith(LABELS) else _NOTES.fullmatch(path)
        is_write = bool(is_writable) and scope["method"] == "POST"
        if not is_write and scope["method"] not in {"GET", "HEAD"}:
            return _refused(405, "this server is read-only")
        # A form or script of another page can't send all this.
        is_own = (
            headers.get("origin") == f"http://{host}"
            and headers.get("sec-fetch-site", "same-origin") == "same-origin"
            and headers.get("content-type") == "application/json"
        )
        if is_write and not is_own:
            return _refused(403, "requests from other pages are refused")
        is_ours = headers.get("sec-fetch-site", "none") in {"same-origin", "none"} or is_visit
        if headers.get("origin", f"http://{host}") != f"http://{host}" or not is_ours:
            return _refused(403, "requests from other pages are refused")
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = dict(given)
        # The address without the token, escaped for an attribute.
        rest = urlencode([(name, value) for name, value in given if name != TOKEN])
        path = "/" + quote(scope["path"].lstrip("/"), safe="/-._~")
        path = (f"{path}?{rest}" if rest else path).replace("&", "&amp;").replace("'", "%27")
        is_token = secrets.compare_digest(query.get(TOKEN, "").encode(), self.token.encode())
        if TOKEN in query and scope["method"] == "GET" and is_token:
            self.begin()
            response = self._forward(path)
            response.set_cookie(cookie, self.session, httponly=True, samesite="strict", path="/")
            return response
        held = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        if secrets.compare_digest(held.encode(), self.session.encode()):
            # A link that was used before, opened again by who used it.
            return self._forward(path) if TOKEN in query else None
        if is_visit:
            return HTMLResponse(_PAGE.format(head="", text=_ENTER.format(path=path)), 401)
        return _refused(401, "open the link that orchestrator view printed")

    @staticmethod
    def _forward(path: str) -> Response:
        # A redirect of a visit that another site began would not carry the new cookie.
        head = f'<meta http-equiv="refresh" content="0;url={path}">'
        return HTMLResponse(_PAGE.format(head=head, text=f'<a href="{path}">Continue</a>'))


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)


HOST: Final = "127.0.0.1"
USUAL_PORT: Final = 8765
_KEEP_ALIVE_S: Final = 30
_DRAIN_S: Final = 2


def serve(
    paths: Sequence[Path],
    *,
    port: int | None,
    open_browser: bool,
    allow_code: bool,
    labels: Path | None = None,
    page: str = "/?",
) -> None:
    """Serve the pages of runs until a signal comes.

    Port 0 takes any, None the usual one where it is free. A sheet of `labels` is the only file that
    is written. The link opens `page`, an address that ends with "?" or "&".

    Raises:
        UsageError: If the port is taken.
        DatasetError: If a row of the sheet is wrong.
    """
    desk = None if labels is None else Sheet(labels)
    listening = _opened(port)
    taken = listening.getsockname()[1]

    def announce(token: str) -> None:
        link = f"http://{HOST}:{taken}{page}{TOKEN}={token}"
        write_to(sys.stderr, f"open {link}\n")

    # A second signal, which the server raises when it has ended, must not skip what is left.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    above = state_folder().parent / "view"
    with on_disk_error(f"{above} cannot be written"):
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        contextlib.closing(listening),
        # For what is made from runs.
        files.temporary_folder(above) as folder,
        # From the moment when the user is told of Ctrl-C, it is the way to end.
        contextlib.suppress(KeyboardInterrupt),
    ):
        library = Library(paths, folder, allow_code=allow_code)
        places = ", ".join(safe_line(str(path)) for path in paths)
        shown = f"runs in {places}" if places else "no runs"
        shown += "" if labels is None else f"; labels go to {safe_line(str(labels))}"
        write_to(sys.stderr, f"{shown}; press Ctrl-C to stop\n")
        # Every run needs them; loaded while the browser opens, not when it asks.
        threading.Thread(target=bundled, daemon=True).start()
        guard = Guard(make_app(library, desk), announce, writes=desk is not None)
        guard.begin()
        if open_browser:
            webbrowser.open(f"http://{HOST}:{taken}{page}{TOKEN}={guard.token}")
        config = uvicorn.Config(
            guard,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            # Reads no more than 64 KB of a request's head; the other parser has no bound.
            http="h11",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        with asyncio.Runner() as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[listening]))


def _opened(port: int | None) -> socket.socket:
    if port is not None and not 0 <= port <= _MAX_PORT:
        raise UsageError(f"--port must be from 0 (any free port) to {_MAX_PORT}, not {port}")
    for wanted in (USUAL_PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, wanted))
            # A link that is opened before the server runs then waits instead of being refused.
            listening.listen()
        except OSError as error:
            listening.close()
            if wanted and port is None:
                continue
            raise UsageError(
                f"cannot listen on port {wanted}: {error.strerror or error}; use --port 0"
            ) from error
        return listening
    raise AssertionError
