"""A whole run through TLS: each request has what the recipe says, and no file has a secret."""

import json
import os
import ssl
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.e2e.runs import ROOT
from tests.fake.main import serving
from tests.fake.threaded import threaded

HIDDEN = {
    "A_KEY": "sk-0123456789abcdef",
    "A_TOKEN": "Token 0123456789abcdef-of-a-header",
    "A_SIGNATURE": "0123456789abcdef/of+a=query",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", "key.pem", "-out", "ca.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@contextmanager
def served(rules, folder):
    """A fake server behind TLS in a thread of its own: its address, and all that it is asked."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    key = HIDDEN["A_KEY"]
    with threaded(lambda: serving(rules, models=["m"], key=key, tls=tls)) as (url, server):
        server.seen = []
        yield url, server.seen


def command(tmp_path, *words):
    environment = {**os.environ, **HIDDEN, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=tmp_path, env=environment, capture_output=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "dialect"),
    [
        ("openai", "native"),
        pytest.param(None, "native", marks=pytest.mark.slow),
        pytest.param("vllm", "vllm_v2", marks=pytest.mark.slow),
    ],
)
def test_a_run_sends_all_of_it_everywhere(tmp_path, certificate, kind, dialect):
    (tmp_path / "ca.pem").write_bytes((certificate / "ca.pem").read_bytes())
    words = {"enable_thinking": False}
    with served({"dialect": dialect, "rules": []}, certificate) as (url, seen):
        model = {
            "base_url": f"{url}/v1",
            "model": "m",
            "api_key_env": "A_KEY",
            "headers": {"X-Team": "evals", "X-Token": {"env": "A_TOKEN"}},
            "query": {"api-version": "2", "sig": {"env": "A_SIGNATURE"}},
            "extra_body": {"chat_template_kwargs": words},
            "ca_file": "ca.pem",
            **({} if kind is None else {"backend": kind}),
        }
        recipe = {
            "models": {"a": model, "b": model, "judge": model},
            "dataset": {"kind": "demo", "n": 3},
            "methods": [
                {"kind": "pairwise_ranking", "judges": ["judge"], "labels": "two",
                 "answer": {"max_tokens": 4}},
            ],
        }  # fmt: skip
        (tmp_path / "r.json").write_text(json.dumps(recipe))
        done = command(tmp_path, "run", "r.json", "--run-dir", "run")
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    assert len(seen) > 20
    for one in seen:
        assert one.headers["x-team"] == "evals"
        assert one.headers["x-token"] == HIDDEN["A_TOKEN"]
        assert one.headers["api-key"] == HIDDEN["A_KEY"]
        query = {"api-version": ["2"], "sig": [HIDDEN["A_SIGNATURE"]]}
        assert parse_qs(urlsplit(one.path).query) == query
        body = json.loads(one.body) if one.body else {}
        if "messages" in body:
            assert body["chat_template_kwargs"] == words
    outputs = [done.stdout, done.stderr]
    for words_of in (["report", "run"], ["report", "run", "--format", "json"], ["plan", "r.json"]):
        done = command(tmp_path, *words_of)
        outputs += [done.stdout, done.stderr]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    for content in (*outputs, *files):
        assert b"0123456789abcdef" not in content
    (revision,) = (tmp_path / "run").rglob("*revision*/*.yaml")
    said = revision.read_text()
    assert "env: A_TOKEN" in said
    assert "env: A_SIGNATURE" in said


def test_without_its_certificate_a_run_names_the_setting(tmp_path, certificate):
    with served([], certificate) as (url, seen):
        recipe = {
            "models": {"a": {"base_url": url, "model": "m", "limits": {"dead_after_s": 1}}},
            "dataset": {"kind": "demo", "n": 2},
            "methods": [{"kind": "answers"}],
        }
        (tmp_path / "r.json").write_text(json.dumps(recipe))
        done = command(tmp_path, "run", "r.json", "--run-dir", "run")
    assert done.returncode != 0
    assert not seen
    assert b"certificate is not trusted" in done.stdout + done.stderr
    assert b"`ca_file`" in done.stdout + done.stderr
