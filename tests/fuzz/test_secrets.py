"""A key goes into one header, and nowhere else whatever the server does with it."""

import itertools
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from orchestrator.interface import api
from orchestrator.records import Failure, Generation
from orchestrator.store import Store
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from tests.fuzz.echo import WAYS, answered, echoing, listed

KEY = 'sk-fuzz/+"0123456789abcdef'
SPELLINGS = {KEY, json.dumps(KEY)[1:-1], quote(KEY, safe=""), "0123456789abcdef"}


def call(folder: Path, *arguments: str) -> bytes:
    """Return the output of a command on both streams."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "orchestrator", *arguments],
        cwd=folder, env={**os.environ, "A_KEY": KEY}, timeout=100,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.stdout


pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    """A folder in which a run met a server that echoes the key in every way, and what was written.

    Two transports, so that errors of both packages come up.
    """
    folder = tmp_path_factory.mktemp("echo")
    with echoing() as url:
        lean = {"kind": "openai", "logprobs": False}
        backends = [("lean", lean), ("sdk", {**lean, "transport": "openai"})]
        models = {
            f"{name}-{way}": {"base_url": url, "api_key_env": "A_KEY", "backend": backend}
            for way, (name, backend) in zip(range(len(WAYS)), itertools.cycle(backends))
        }
        recipe = {
            "models": models,
            "dataset": {"kind": "demo", "n": 4},
            "methods": [{"kind": "answers", "answer": {"max_tokens": 4}}],
            "limits": {"max_attempts": 1, "max_in_flight": 26, "dead_after_s": 1, "timeout_s": 5},
        }
        (folder / "r.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        asked = (
            *("check r.yaml", "plan r.yaml", "servers probe r.yaml"),
            "run r.yaml --run-dir run --display plain",
        )
        with ThreadPoolExecutor() as pool:  # two of them wait most of the time
            written = [*pool.map(lambda line: call(folder, *line.split()), asked)]
        written += [
            call(folder, *arguments)
            for arguments in (
                ("run", "r.yaml", "--run-dir", "run", "--display", "json"),
                ("status", "run", "--json"),
                *(("report", "run", "--format", form) for form in ("table", "markdown", "json")),
                ("report", "run", "--html"),
                *(("export", "run", "--to", "out", "--format", form) for form in ("csv", "jsonl")),
                ("check", "r.yaml", "--set", f"models.lean.api_key={KEY}"),
            )
        ]
    return folder, written


def test_an_answer_that_repeats_the_key_is_refused():
    for text in (KEY, f"Your key is {KEY}."):
        found = replies.generation(answered(text, "stop"), Reading(logprobs=False, secret=KEY))
        assert isinstance(found, Failure)
        assert found.permanent
        assert KEY not in found.message


def test_a_short_key_may_be_a_word_of_an_answer():
    word = "EMPTY"
    found = replies.generation(answered(word, "stop"), Reading(logprobs=False, secret=word))
    assert isinstance(found, Generation)


def test_a_reason_that_repeats_the_key_does_not_show_it():
    found = replies.generation(answered("x", KEY), Reading(logprobs=False, secret=KEY))
    assert isinstance(found, Generation)
    assert found.finish_reason == "[key]"


@pytest.mark.parametrize("size", [100, 12, 8])
def test_tokens_of_the_key_are_in_no_record_of_a_probe(size, tmp_path, monkeypatch):
    """A server that draws the key, as one token or in parts, and lists the parts beside it."""
    monkeypatch.setenv("A_KEY", KEY)
    parts = [KEY[at : at + size] for at in range(0, len(KEY) - 2, size)]
    with echoing([lambda _: (200, listed(parts, KEY))]) as url:
        recipe = {
            "models": {"a-0": {"base_url": url, "api_key_env": "A_KEY", "backend": "openai"}},
            "dataset": {"kind": "demo", "n": 2},
            "methods": [{"kind": "answers", "answer": {"max_tokens": 4}}],
            "limits": {"max_attempts": 1, "dead_after_s": 2, "timeout_s": 5},
        }
        (tmp_path / "r.json").write_text(json.dumps(recipe), encoding="utf-8")
        api.run(tmp_path / "r.json", run_dir=tmp_path / "run", display="none")
    stored = b"".join(file.read_bytes() for file in (tmp_path / "run").glob("store.sqlite*"))
    assert b'"seen":[{' in stored
    assert [part for part in (*parts, *SPELLINGS) if part.encode() in stored] == []


@pytest.mark.slow
def test_the_key_is_in_no_output_and_no_file(called):
    folder, written = called
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path.name for path in files} >= {"store.sqlite", "log.jsonl", "status.json"}
    for spelling in SPELLINGS:
        assert [path for path, content in files.items() if spelling.encode() in content] == []
        assert [output for output in written if spelling.encode() in output] == []


@pytest.mark.slow
def test_the_key_is_in_no_stored_failure(called):
    folder, _ = called
    with Store.open(folder / "run" / "store.sqlite", read_only=True) as store:
        messages = [one.last_message for one in store.failures()]
    assert any("[key]" in message for message in messages)
    assert not any(spelling in message for message in messages for spelling in SPELLINGS)


@pytest.mark.slow
def test_a_run_directory_is_its_owners_alone(called):
    folder, _ = called
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700
