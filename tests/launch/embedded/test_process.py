"""The command itself: ready line, key, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.embedded import server
from tests.launch.embedded.client import USER, Client

COMMAND = [sys.executable, "-m", "launch.embedded.server"]


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    command = [*COMMAND, "--model", f"bos={folder}", "--port", "0", "--threads", "1", *arguments]
    environment = {**os.environ, server.KEY_VARIABLE: "k", "PYTHONWARNINGS": "default"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith("ready "):
                break
        assert process.poll() is None, seen
        yield process, Client(seen[-1].split()[1], "k")
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_a_signal_lets_what_is_in_flight_finish_and_exits_0(folders: dict[str, Path]) -> None:
    with running(folders["bos"]) as (process, client):
        assert client.raw("GET", "/v1/models")[0] == 200
        assert Client(f"http://{client.host}:{client.port}").raw("GET", "/v1/models")[0] == 401
        replies = []
        asked = {"messages": USER, "max_tokens": 150, "ignore_eos": True}
        body = json.dumps(asked).encode()

        def ask() -> threading.Thread:
            asking = threading.Thread(
                target=lambda: replies.append(client.raw("POST", "/v1/chat/completions", body))
            )
            asking.start()
            return asking

        asking = ask()
        while not client.metric("num_requests_running"):
            if replies:
                # It was answered before it was seen.
                replies.clear()
                asking = ask()
        process.send_signal(signal.SIGTERM)
        asking.join(60)
        assert process.wait(60) == 0
        assert replies[0][0] == 200
        assert json.loads(replies[0][1])["usage"]["completion_tokens"] == 150


@pytest.mark.parametrize("entry", ["nothing", "a=", "=b"])
def test_a_wrong_model_argument_is_refused_at_once(
    entry: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert server.main(["--model", entry]) != 0
    assert "NAME=DIR" in capsys.readouterr().err


def test_a_folder_without_a_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert server.main(["--model", f"x={tmp_path}"]) == 1
    said = capsys.readouterr().err
    assert str(tmp_path) in said
    assert "Traceback" not in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gpu-node"])  # noqa: S104
def test_a_server_that_others_can_ask_needs_a_key(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(server.KEY_VARIABLE, raising=False)
    assert server.main(["--model", "a=b", "--host", host]) != 0
    assert f"environment variable {server.KEY_VARIABLE}" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_server_of_this_machine_alone_needs_none(host: str) -> None:
    assert server.is_loopback(host)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_models_load_ends_it_well(number):
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        server._stop_on_signals()
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(number)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert ended.value.code == 0
