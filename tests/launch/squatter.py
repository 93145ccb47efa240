"""A program that answers for a server at a port that is not its own, and writes down what it got.

It leaves the process group and the family of whoever started it, as another user's program would.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Answers like a server with the model `m`."""

    def do_GET(self) -> None:
        with Path(sys.argv[2]).open("ab") as heard:
            heard.write(f"{self.path} {self.headers['Authorization']}\n".encode())
        content = b'{"data": [{"id": "m"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


class Squatter(ThreadingHTTPServer):
    allow_reuse_address = False


if __name__ == "__main__":
    server = Squatter(("127.0.0.1", int(sys.argv[1])), Handler)
    Path(sys.argv[2]).touch()
    if os.fork():
        os._exit(0)
    os.setsid()
    Path(sys.argv[3]).write_bytes(str(os.getpid()).encode())
    server.serve_forever()
