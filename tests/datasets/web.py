"""A small web server on 127.0.0.1 that can redirect, break off, stall and refuse."""

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """Serves `files` by path; `faults` say what goes wrong, for how many requests.

    A fault is "truncate" (half of what is due), "stall", "unannounced" (no length), an int (a
    status), and is used up in order; `redirects` lead from one path to an address.
    """

    def __init__(self):
        self.files = {}
        self.faults = {}
        self.redirects = {}
        self.headers = {}
        self.requests = []
        self.counts: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self):
        web = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                answer(web, self)

        return Handler


def answer(web, handler):
    path = handler.path
    web.requests.append((path, dict(handler.headers)))
    web.counts[path] += 1
    fault = web.faults[path].pop(0) if web.faults.get(path) else None
    if path in web.redirects:
        handler.send_response(302)
        handler.send_header("Location", web.redirects[path])
        handler.end_headers()
    elif isinstance(fault, int):
        handler.send_error(fault)
    elif path not in web.files:
        handler.send_error(404)
    else:
        send(web, handler, web.files[path], fault)


def send(web, handler, content, fault):
    handler.send_response(200)
    if fault != "unannounced":
        handler.send_header("Content-Length", str(len(content)))
    for name, value in web.headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    if fault == "stall":
        time.sleep(1.0)
    handler.wfile.write(content[: len(content) // 2] if fault == "truncate" else content)
