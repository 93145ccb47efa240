"""A connection that is left open fails the tests, and does not hang them."""

import subprocess
import sys
import textwrap

import pytest

from tests.conftest import ROOT

LEAKING = """
    import asyncio

    from orchestrator.runner.event_loop import event_loop

    async def leak():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
        server.close()

    def test_leak():
        with event_loop() as (to_end, _):
            to_end(leak())
"""


@pytest.mark.slow
def test_an_open_connection_fails_the_session_with_the_name_of_its_test(tmp_path):
    (tmp_path / "test_leaking.py").write_text(textwrap.dedent(LEAKING))
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"),
        "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path),
    ]  # fmt: skip
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "test_leaking.py::test_leak: unclosed resource <TCPTransport" in ended.stdout
