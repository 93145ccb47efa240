"""Headers, a query, fields of bodies and certificates of a model go with every request it is sent.

For each kind of back-end that speaks HTTP, and for each transport: what it asks of the server, how
it tokenises, what it asks of the server about itself, and what a probe asks.
"""

import asyncio
import contextlib
import json
import logging
import ssl
import subprocess
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from pydantic import ValidationError

from backends import embedded, fake, llamacpp, openai, sglang, tgi, vllm
from backends._aiohttp_transport import AiohttpTransport
from backends._openai_compatible import TRIED
from backends._transport import Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint, Provenance, answered, check_header, with_query
from orchestrator.errors import UsageError
from orchestrator.network import trust, words_of
from orchestrator.recipe.schema import ModelEntry
from orchestrator.records import Choice, Failure, Generation, Message, Sampling, Scored, labels
from orchestrator.runner.models.asking import Http, Target
from orchestrator.runner.models.probe import probe_model
from tests.backends.kinds import kind_in
from tests.fake.main import serving
from tests.whole import whole

KEY = "sk-of-this-endpoint"
HIDDEN = "hidden-value-of-a-header"
SIGNED = "hidden/value of=a&query"
WORDS = {"enable_thinking": False}
MESSAGES = (Message("user", "What is 2 + 2?"),)
LABELS = labels("A", "B", "C")
KINDS: dict[str, tuple[ModuleType, str, dict[str, Any]]] = {
    "openai": (openai, "native", {}),
    "openai by aiohttp": (openai, "native", {"transport": "aiohttp"}),
    "openai by its package": (openai, "native", {"transport": "openai"}),
    "vllm": (vllm, "vllm_v2", {}),
    "sglang": (sglang, "sglang", {}),
    "tgi": (tgi, "tgi", {}),
    "llamacpp": (llamacpp, "llama_server", {}),
    "embedded": (embedded, "native", {}),
    "fake": (fake, "native", {}),
}
FIELDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "headers": {"headers": {"X-Team": "evals", "user-agent": "of-ours"}},
    "headers of the environment": {"headers": {"X-Token": HIDDEN}, "hidden": HIDDEN},
    "query of the environment": {"query": {"sig": SIGNED}, "hidden": SIGNED},
    "extra_body": {"extra_body": {"chat_template_kwargs": WORDS, "user": "u-1"}},
}
DRAWS = ("/chat/completions", "/generate", "/completion")


@asynccontextmanager
async def connected(kind: str, tls=None, **fields):
    """A back-end of a kind, its endpoint, and all requests that its server gets."""
    module, dialect, settings = KINDS[kind]
    rules = {"dialect": dialect, "rules": []}
    models = ["/model"] if dialect == "tgi" else ["m"]
    async with serving(rules, models=models, key=KEY, tls=tls) as (url, server):
        server.seen = []
        base_url = with_query(url, {"api-version": "2"})
        endpoint = Endpoint(
            base_url=base_url, model=models[0], api_key=KEY, timeout_s=60.0, **fields
        )
        found = kind_in(module)
        backend = found(found.Config(**settings)).connect(endpoint)
        try:
            yield backend, endpoint, server.seen
        finally:
            await backend.close()


async def ask_all(backend, endpoint, kind: str) -> list[object]:
    """Ask everything that a run asks, of a probe too."""
    stated = await answered(backend.provenance())
    drawn = await backend.generate(GenerateAsk("m", MESSAGES, Sampling(max_tokens=4)), 1)
    assert isinstance(drawn, Generation), drawn
    assert isinstance(stated, Provenance), stated
    found: list[object] = [
        stated,
        drawn,
        await backend.score(ScoreAsk("m", MESSAGES, (), drawn.text)),
    ]
    found.append(await backend.choose(ChooseAsk("m", MESSAGES, LABELS)))
    found += [await backend.reward(TRIED), await backend.load()]
    module = KINDS[kind][0].__name__.rpartition(".")[2]
    target = Target(kind=module, endpoint=endpoint, backend=backend, provenance=stated)
    await probe_model(target)
    async with Http(endpoint) as http:
        await http.get("/v1/models")
    return found


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_each_request_of_each_kind_has_what_the_model_is_given(kind, field):
    fields = FIELDS[field]
    async with connected(kind, **fields) as (backend, endpoint, seen):
        found = await ask_all(backend, endpoint, kind)
        if "openai" not in kind:
            assert isinstance(found[2], Scored), found[2]
        if kind != "sglang":
            assert isinstance(found[3], Choice), found[3]
    assert len(seen) > 5
    posted = [(one, json.loads(one.body)) for one in seen if one.method == "POST"]
    for one in seen:
        assert one.headers["authorization"] == one.headers["api-key"].join(("Bearer ", ""))
        for name, value in fields.get("headers", {}).items():
            assert one.headers[name.lower()] == value
        query = {"api-version": ["2"]} | {k: [v] for k, v in fields.get("query", {}).items()}
        assert parse_qs(urlsplit(one.path).query) == query
    extra = fields.get("extra_body", {})
    n_draws = 0
    for one, body in posted:
        path = urlsplit(one.path).path
        if "messages" in body:
            assert body.get("chat_template_kwargs") == extra.get("chat_template_kwargs")
        is_draw = path.endswith(DRAWS) and "logprob_start_len" not in body
        if is_draw and body.get("user"):
            n_draws += 1
            assert body["user"] == "u-1"
    assert (n_draws > 0) == bool(extra)
    if extra:
        assert any("messages" in body for _, body in posted)


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_hidden_gets_no_further_than_the_server(kind, status, caplog):
    caplog.set_level(logging.DEBUG)
    module, dialect, settings = KINDS[kind]
    models = ["/model"] if dialect == "tgi" else ["m"]
    rules = {"dialect": dialect, "rules": [{"fault": "echo_key", "status": status}]}
    async with serving(rules, models=models, key=KEY) as (url, _):
        endpoint = Endpoint(
            base_url=url,
            model=models[0],
            api_key=KEY,
            headers={"X-Token": HIDDEN},
            query={"sig": SIGNED},
            hidden=f"{HIDDEN}\n{SIGNED}",
        )
        found = kind_in(module)
        backend = found(found.Config(**settings)).connect(endpoint)
        said: list[object] = [
            await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1),
            await backend.score(ScoreAsk("m", MESSAGES, (1,))),
            await backend.choose(ChooseAsk("m", MESSAGES, LABELS)),
        ]
        async with Http(endpoint) as http:
            if status != 200:
                said.append(await http.post("/v1/chat/completions", {"model": "m"}))
        shown = repr((backend, endpoint, *said, vars(backend).keys())) + caplog.text
        await backend.close()
    assert isinstance(said[0], Failure)
    for secret in (KEY, HIDDEN, SIGNED, "hidden%2Fvalue", "hidden/value"):
        assert secret not in shown


IN_CODES = "".join(one if one.isalnum() else f"\\u{ord(one):04X}" for one in SIGNED)
REFUSALS = [
    ("400 Bad", "", f'{{"error": {{"message": "no such key: {IN_CODES}"}}}}', "no such key: [key]"),
    ("308 Moved", f"http://h/?sig={SIGNED}", "<html>", "redirects to http://h/?sig=[key]; correct"),
    ("308 Moved", f"/new/v1/chat/completions?sig={SIGNED}", "", "/new/v1?sig=[key]"),
    ("307 Moved", f"//h/api/chat/completions?sig={SIGNED}", "", "base_url to http://h/api?sig=["),
    ("301 Moved", f"http://[h/?sig={SIGNED}", "", "redirects to http://[h/?sig=[key]; correct"),
]


@pytest.mark.parametrize(("status", "location", "body", "said"), REFUSALS)
async def test_what_refuses_is_said_without_secrets(status, location, body, said):
    head = f"HTTP/1.1 {status}\r\nLocation: {location}\r\nContent-Length: {len(body)}\r\n\r\n"
    n_asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_asked
        n_asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write((head + body).encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}", model="m", hidden=SIGNED)
        async with Http(endpoint) as http:
            found = await http.get("/version")
        kind = kind_in(openai)
        backend = kind(kind.Config()).connect(endpoint)
        try:
            refused = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
        finally:
            await backend.close()
    for words in (found.words, refused.message if isinstance(refused, Failure) else ""):
        assert said in words
        assert SIGNED not in words
    assert n_asked == 2


@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport, Http])
async def test_a_proxy_that_refuses_is_told_without_its_password(kind, monkeypatch):
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hunter2@127.0.0.1:{port}")
        client = kind(Endpoint(base_url="https://models.example/v1", model="m"))
        if isinstance(client, Http):
            async with client:
                said = (await client.get("/v1/models")).words
        else:
            said = repr(await client.post("/v1/x", b"{}", 5.0, whole))
            await client.close()
    assert "407" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "Connection", "a b", "X:Y", "", "X\r\nY"],
)
@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport])
def test_a_header_that_is_not_the_users_to_set_is_refused(kind, name):
    with pytest.raises(ValueError, match="header"):
        check_header(name)
    with pytest.raises(UsageError):
        kind(Endpoint(base_url="http://127.0.0.1:1", model="m", headers={name: "x"}))


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nb", "é", " xyz9", "", "\x00"])
@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport])
def test_a_value_that_would_break_a_head_is_refused_and_not_shown(kind, value):
    with pytest.raises(UsageError) as caught:
        kind(Endpoint(base_url="http://127.0.0.1:1", model="m", headers={"X-A": value}))
    assert not value.strip() or value not in str(caught.value)


@pytest.mark.parametrize("spelled", ["Authorization", "authorization", "AUTHORIZATION"])
@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport])
async def test_a_header_that_shows_a_key_otherwise_goes_before_ours(kind, spelled):
    async with serving([], models=["m"]) as (url, server):
        server.seen = []
        endpoint = Endpoint(
            base_url=url, model="m", api_key=KEY, headers={spelled: "Basic abc", "User-Agent": "u"}
        )
        transport = kind(endpoint)
        assert isinstance(await transport.get("/health", 5.0), Reply)
        await transport.close()
        async with Http(endpoint) as http:
            assert (await http.get("/health")).status == 200
    assert len(server.seen) == 2
    for one in server.seen:
        assert one.headers["authorization"] == "Basic abc"
        assert one.headers["user-agent"] == "u"


# What a user may set: it changes what is drawn, and no number is taken for another.
FREE = {
    "add_special_tokens", "allowed_token_ids", "frequency_penalty", "grammar", "logit_bias",
    "logprob_token_ids", "min_new_tokens", "min_p", "min_tokens", "presence_penalty",
    "prompt_logprobs", "repetition_penalty", "return_token_ids", "return_tokens_as_token_ids",
    "skip_special_tokens",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_a_field_that_decides_what_a_reply_says_is_not_the_users(kind):
    async with connected(kind) as (backend, endpoint, seen):
        await ask_all(backend, endpoint, kind)
    bodies = [(urlsplit(one.path).path, json.loads(one.body or b"{}")) for one in seen]
    names: set[str] = set()
    for path, body in bodies:
        if path.endswith((*DRAWS, "/completions")):
            nested = (body.get("parameters"), body.get("sampling_params"))
            names |= body.keys() | {name for one in nested if isinstance(one, dict) for name in one}
    assert names
    for name in sorted(names - FREE):
        if kind != "llamacpp":
            with pytest.raises(ValidationError, match=f"already set by the recipe.*{name}"):
                ModelEntry(extra_body={name: None})


@pytest.mark.parametrize("name", ["add_generation_prompt", "continue_final_message", "lora_path"])
def test_where_an_answer_begins_is_not_the_users(name):
    with pytest.raises(ValidationError, match=f"already set by the recipe.*{name}"):
        ModelEntry(extra_body={name: False})


@pytest.mark.parametrize("field", ["id_slot", "min_p", "n_predict", "n_probs", "samplers", "seed"])
def test_a_field_that_the_kind_writes_itself_is_refused_where_the_kind_is_known(field):
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="m", extra_body={field: 1})
    with pytest.raises(UsageError, match=f"already set by the recipe.*{field}"):
        llamacpp.Kind(llamacpp.Config()).connect(endpoint)


# Certificates.


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A private authority's certificate, and a context of a server that it has signed."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(*new, "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, "-subj", "/CN=server", "-keyout", "s.key", "-out", "s.csr")
    (folder / "s.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*signed, "-in", "s.csr", "-out", "s.pem", "-extfile", "s.ext", "-days", "2")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "s.pem", folder / "s.key")
    return str(folder / "ca.pem"), context


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_of_a_private_authority_is_reached_by_its_certificate(kind, authority):
    ca_file, tls = authority
    async with connected(kind, tls, ca_file=ca_file) as (backend, endpoint, seen):
        await ask_all(backend, endpoint, kind)
    assert len(seen) > 5


@pytest.mark.parametrize("kind", KINDS)
async def test_without_the_certificate_the_setting_is_named(kind, authority):
    _, tls = authority
    async with connected(kind, tls) as (backend, endpoint, seen):
        found = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
        assert isinstance(found, Failure)
        async with Http(endpoint) as http:
            listed = await http.get("/v1/models")
    assert not seen
    for said in (found.message, listed.words):
        assert "certificate is not trusted" in said
        assert "`ca_file`" in said
        assert "issuer certificate" in said


@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport])
async def test_a_certificate_of_another_host_is_not_trusted_for_its_authority(kind, authority):
    ca_file, tls = authority
    async with serving([], tls=tls) as (url, _):
        named = url.replace("127.0.0.1", "localhost")
        transport = kind(Endpoint(base_url=named, model="m", ca_file=ca_file))
        found = await transport.post("/v1/x", b"{}", 5.0, whole)
        await transport.close()
    assert isinstance(found, Failure)
    assert "localhost" in found.message


@asynccontextmanager
async def listening(answer: bytes, tls: ssl.SSLContext | None = None):
    """A server that answers all it gets in one way, or nothing; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(OSError):
            if answer and await reader.read(1):
                writer.write(answer)
            await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    tasks: list[Any] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
        # The clients are closed by now, so that each of these ends.
        for task in tasks:
            await task


TRANSPORTS = [AiohttpTransport, OpenaiTransport]


async def said_by(kind, url: str, timeout_s: float = 20.0, **settings: Any) -> Reply | Failure:
    transport = kind(Endpoint(base_url=url, model="m", **settings))
    try:
        found: Reply | Failure = await transport.post("/v1/x", b"{}", timeout_s, whole)
        return found
    finally:
        await transport.close()


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_a_server_that_stays_silent_behind_tls_is_out_of_time(kind, authority):
    ca_file, tls = authority
    async with listening(b"", tls) as port:
        found = await said_by(kind, f"https://127.0.0.1:{port}", 0.3, ca_file=ca_file)
    assert found == Failure("timeout", "no complete reply within 0.3 s")


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_a_server_that_speaks_no_tls_is_said_to(kind):
    async with listening(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as port:
        found = await said_by(kind, f"https://127.0.0.1:{port}")
    assert isinstance(found, Failure)
    assert "begins with http://" in found.message


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_a_proxy_that_speaks_tls_is_trusted_as_the_server_is(kind, authority, monkeypatch):
    ca_file, tls = authority
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", tls) as port:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"https://127.0.0.1:{port}")
        found = await said_by(kind, "http://models.example", ca_file=ca_file)
        assert isinstance(found, Reply), found
        refused = await said_by(kind, "http://models.example")
    assert isinstance(refused, Failure)
    assert "not trusted" in refused.message


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_what_a_proxy_refuses_is_said_to_be_its_word(kind, monkeypatch):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with listening(refusal) as port:
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        found = await said_by(kind, "https://models.example")
    assert isinstance(found, Failure)
    assert "the proxy answered HTTP 407" in found.message


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_a_proxy_without_an_address_is_the_users_to_mend(kind, monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://me:secret@127.0.0.1:notaport")
    with pytest.raises(UsageError, match="proxy that the environment names") as caught:
        await said_by(kind, "https://models.example")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("certificate has expired", "clock"),
        ("Hostname mismatch, certificate is not valid for 'h'.", "of another host"),
        ("IP address mismatch, certificate is not valid for '1.2.3.4'.", "of another host"),
        ("self-signed certificate in certificate chain", "`ca_file`"),
        ("unable to get local issuer certificate", "`ca_file`"),
    ],
)
def test_each_fault_of_a_certificate_has_its_own_remedy(why, said):
    error = f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {why} (_ssl.c:1006)"
    words = words_of(OSError(error), "")
    assert said in words
    assert f"({why})" in words
    assert ("`ca_file`" in words) == (said == "`ca_file`")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "can't be read"), ("", "PEM"), ("no certificate", "PEM")]
)
def test_a_file_without_certificates_is_refused_by_its_name(tmp_path, content, said):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as caught:
        trust(str(file))
    assert said in str(caught.value)
    assert "ca.pem" in str(caught.value)


def test_a_secret_is_each_of_the_key_and_what_is_hidden():
    endpoint = Endpoint(base_url="http://h", model="m", api_key=KEY, hidden=f"{HIDDEN}\n{SIGNED}")
    assert endpoint.secret.split("\n") == [KEY, HIDDEN, SIGNED]
    assert msgspec.structs.replace(endpoint, hidden="").secret == KEY
    assert Endpoint(base_url="http://h", model="m").secret == ""
