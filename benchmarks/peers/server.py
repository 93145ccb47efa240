"""The server that all clients are measured against: nginx with fixed replies, or our own.

`/BODY/v1` answers at once, its late sister after 200 ms, with the body of that name: every client
gets the same bytes. Without nginx (Debian: `nginx` and `libnginx-mod-http-echo`) both are
`counting_server.py`, which takes more of a core.
"""

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks._server import launched

LATENCY_S = 0.2
ECHO_MODULE = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")
Files = Mapping[str, bytes]

_START_S = 10.0
_CONFIG = """
load_module {module};
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 300s;
  client_body_buffer_size 1m;
  client_max_body_size 64m;
  client_body_temp_path {folder}/t1;
  proxy_temp_path {folder}/t2;
  fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4;
  scgi_temp_path {folder}/t5;
  open_file_cache max=64;
  default_type application/json;
  root {folder}/root;
  server {{
    listen 127.0.0.1:{port} backlog=8192;
    location / {{ error_page 405 =200 $uri; }}
    location = /status {{ stub_status; }}
    location ~ ^/late(/.*)$ {{
      set $file $1;
      echo_read_request_body;
      echo_sleep {latency};
      echo_exec $file;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: What answers at once; no slash at its end.
        late_url: What answers after `LATENCY_S`.
        name: What it is, for the page.
    """

    url: str
    late_url: str
    name: str

    def base(self, body: str, *, late: bool = False) -> str:
        """Base URL, without /v1, under which chats are answered with this body."""
        return f"{self.late_url if late else self.url}/{body}"


@contextmanager
def fixed_replies(bodies: Mapping[str, Files]) -> Iterator[Server]:
    """A server with the files of each body, by path from `/v1/` on."""
    files = {
        f"/{name}{path}": content
        for name, found in bodies.items()
        for path, content in found.items()
    }
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if nginx and ECHO_MODULE.exists():
        with tempfile.TemporaryDirectory() as folder, _nginx(nginx, files, Path(folder)) as server:
            yield server
        return
    with counting(files) as url, counting(files, "--latency", str(LATENCY_S)) as late_url:
        yield Server(url, late_url, "counting_server.py, as there is no nginx")


@contextmanager
def counting(files: Files, *options: str) -> Iterator[str]:
    """Our own server with files by path and more options; yields its URL, whose /open counts."""
    with tempfile.TemporaryDirectory() as name:
        replies = []
        for number, (path, content) in enumerate(files.items()):
            file = Path(name) / str(number)
            file.write_bytes(content)
            replies += ["--reply", f"{path}={file}"]
        with launched("benchmarks.peers.counting_server", *replies, *options) as url:
            yield url


def opened(url: str) -> dict[str, float]:
    """The most requests, and the median number, that were open at once at a `counting` server."""
    found: dict[str, float] = json.loads(_get(f"{url}/open"))
    return found


@contextmanager
def _nginx(binary: str, files: Files, folder: Path) -> Iterator[Server]:
    for path, content in files.items():
        file = folder / "root" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    # Its workers give up root's rights, and must read what is in a private folder.
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    url = f"http://127.0.0.1:{_free_port()}"
    text = _CONFIG.format(
        folder=folder, module=ECHO_MODULE, port=url.rpartition(":")[2], latency=LATENCY_S
    )
    config = folder / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    process = subprocess.Popen([binary, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        _await(f"{url}/status", process)
        yield Server(url, f"{url}/late", _version_of(binary))
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        try:
            _get(url)
        except urllib.error.URLError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("nginx does not start: try `nginx -t`")


def _version_of(binary: str) -> str:
    said = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr
    return said.partition(":")[2].strip().replace("/", " ")


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as reply:  # noqa: S310 (loopback)
        text: str = reply.read().decode()
        return text
