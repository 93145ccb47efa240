"""A server of the standard library that behaves, or misbehaves, as its arguments say."""

import argparse
import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    names: tuple[str, ...] = ()
    key = ""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(200, {})
        elif self.headers.get("Authorization") != f"Bearer {self.key}":
            self.reply(401, {})
        else:
            self.reply(200, {"data": [{"id": name} for name in self.names]})

    def reply(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--say", default="")
    parser.add_argument("--say-key", action="store_true")
    parser.add_argument("--die", type=int)
    parser.add_argument("--die-once", type=Path)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--child-pid", type=Path)
    options = parser.parse_args()
    sys.stderr.write(options.say + "\n")
    if options.die is not None:
        sys.exit(options.die)
    if options.die_once and not options.die_once.exists():
        options.die_once.touch()
        sys.exit("OSError: [Errno 98] Address already in use")
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.child_pid:
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"])
        options.child_pid.write_text(str(child.pid))
    Handler.names = tuple(options.model)
    Handler.key = os.environ["ORCHESTRATOR_SERVER_KEY"]
    if options.say_key:
        sys.stderr.write(f"my key is {Handler.key}\n")
        sys.stderr.flush()
    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
