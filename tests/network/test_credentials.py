"""Receivers of keys and passwords; no other file or variable adds one."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.backend import Endpoint
from orchestrator.network import proxy_of
from orchestrator.records import Failure
from orchestrator.runner.models.asking import Http
from tests.whole import whole

PUBLIC = "http://models.example"
NETRC = """machine models.example login me password from-netrc
machine 127.0.0.1 login me password from-netrc
default login me password from-netrc
"""
KINDS = (AiohttpTransport, OpenaiTransport)


class Listener(socketserver.ThreadingTCPServer):
    """Answers every request and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heads: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Listener)
        lines = []
        with contextlib.suppress(OSError):
            while (line := self.rfile.readline()).strip():
                lines.append(line.decode())
            if lines:
                self.server.heads.append("".join(lines))
                self.wfile.write(self.server.answer)


@contextlib.contextmanager
def listening(answer: bytes = b"") -> Iterator[Listener]:
    answer = answer or b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    with Listener(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A netrc file, found by either of the ways in which one is looked for."""
    path = tmp_path / ".netrc"
    path.write_text(NETRC)
    path.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(path))
    return path


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with listening() as server:
        monkeypatch.setenv("http_proxy", f"http://{server.address}")
        monkeypatch.setenv("HTTP_PROXY", f"http://{server.address}")
        yield server


async def post(kind, url: str, key: str = "") -> object:
    transport = kind(Endpoint(base_url=url, model="m", api_key=key))
    try:
        return await transport.post("/v1/chat/completions", b"{}", 10.0, whole)
    finally:
        await transport.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_public_server_is_reached_through_the_proxy_and_gets_nothing_of_netrc(
    kind, netrc, proxy
) -> None:
    reply = await post(kind, PUBLIC)
    assert isinstance(reply, Reply), reply
    (head,) = proxy.heads
    assert head.startswith(f"POST {PUBLIC}/v1/chat/completions ")
    assert "authorization" not in head.lower()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_key_is_the_endpoints_own(kind, netrc, proxy) -> None:
    await post(kind, PUBLIC, "sk-of-this-endpoint")
    (head,) = proxy.heads
    assert head.lower().count("authorization:") == 1
    assert "Bearer sk-of-this-endpoint\r\n" in head


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxys_own_password_is_sent_to_the_proxy(kind, netrc, proxy, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:of-proxy@{proxy.address}")
    monkeypatch.setenv("HTTP_PROXY", f"http://me:of-proxy@{proxy.address}")
    await post(kind, PUBLIC, "sk-of-this-endpoint")
    (head,) = proxy.heads
    assert "bWU6b2YtcHJveHk=" in head
    assert "Bearer sk-of-this-endpoint\r\n" in head


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_before_tls_is_not_sent_the_key(kind, netrc, proxy, monkeypatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{proxy.address}")
    await post(kind, "https://models.example", "sk-of-this-endpoint")
    async with Http(
        Endpoint(base_url="https://models.example", model="m", api_key="sk-of-this-endpoint")
    ) as http:
        await http.get("/v1/models")
    assert len(proxy.heads) >= 2
    for head in proxy.heads:
        assert head.startswith("CONNECT models.example:443 ")
        assert "authorization" not in head.lower()


async def test_a_probe_of_a_public_server_sends_nothing_of_netrc(netrc, proxy) -> None:
    async with Http(Endpoint(base_url=PUBLIC, model="m")) as http:
        reply = await http.get("/v1/models")
    assert reply.status == 200, reply
    (head,) = proxy.heads
    assert head.startswith(f"GET {PUBLIC}/v1/models ")
    assert "authorization" not in head.lower()


@pytest.mark.parametrize("content", ["machine", "\x00\xff", NETRC + "machine models.example what"])
async def test_a_netrc_file_that_is_damaged_is_not_read(netrc, proxy, content) -> None:
    netrc.write_text(content)
    for kind in KINDS:
        assert isinstance(await post(kind, PUBLIC), Reply)
    async with Http(Endpoint(base_url=PUBLIC, model="m")) as http:
        assert (await http.get("/v1/models")).status == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_near_by_is_reached_without_a_proxy_or_netrc(kind, netrc, proxy) -> None:
    with listening() as server:
        assert isinstance(await post(kind, f"http://{server.address}"), Reply)
        async with Http(Endpoint(base_url=f"http://{server.address}", model="m")) as http:
            assert (await http.get("/x")).status == 200
    assert not proxy.heads
    assert not any("authorization" in head.lower() for head in server.heads)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_key_does_not_follow_to_another_host(kind) -> None:
    with listening() as other:
        to = f"Location: http://{other.address}/v1/models\r\n"
        answer = f"HTTP/1.1 307 There\r\n{to}Content-Length: 0\r\nConnection: close\r\n\r\n"
        with listening(answer.encode()) as server:
            url = f"http://{server.address}"
            reply = await post(kind, url, "sk-of-this-endpoint")
            assert isinstance(reply, Reply)
            assert reply.status == 307
            async with Http(
                Endpoint(base_url=url, model="m", api_key="sk-of-this-endpoint")
            ) as http:
                assert (await http.get("/v1/models")).status == 307
    assert not other.heads


NAMES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_way_to_name_a_proxy_is_the_same_for_both_transports(
    kind, name, scheme, proxy, monkeypatch
) -> None:
    for other in NAMES:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, scheme + proxy.address)
    assert isinstance(await post(kind, PUBLIC), Reply)
    with listening() as server:
        assert isinstance(await post(kind, f"http://{server.address}"), Reply)
    assert [len(proxy.heads), len(server.heads)] == [1, 1], "never for this machine"


@pytest.mark.parametrize("listed", ["127.0.0.2", "*", "x.example,models.example", ".example"])
@pytest.mark.parametrize("kind", KINDS)
async def test_hosts_of_no_proxy_are_reached_without_one(kind, listed, monkeypatch, proxy) -> None:
    assert proxy_of(PUBLIC) == f"http://{proxy.address}"
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, listed)
    await post(kind, PUBLIC)
    assert len(proxy.heads) == (listed == "127.0.0.2")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_is_not_reached_by_http_is_ignored_and_said(
    kind, monkeypatch, proxy, caplog
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "socks5://127.0.0.1:1")
    assert isinstance(await post(kind, "http://models.invalid"), Failure)
    assert "only HTTP proxies are supported" in caplog.text
