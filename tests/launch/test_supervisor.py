import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from launch import _starting, _watchdog
from launch._spec import KEY_VARIABLE, ServerSpec
from launch._starting import start_server
from orchestrator.errors import LaunchError

STUB = Path(__file__).with_name("stub_server.py")


def stub_argv(extra: tuple[str, ...], port: int, host: str = "127.0.0.1") -> tuple[str, ...]:
    return (sys.executable, "-S", str(STUB), "--port", str(port), *extra)


def stub(*extra: str, timeout_s: float = 60.0, grace_s: float = 5.0) -> ServerSpec:
    return ServerSpec(
        kind="stub",
        names=("m",),
        argv=partial(stub_argv, ("--model", "m", *extra)),
        start_timeout_s=timeout_s,
        stop_grace_s=grace_s,
    )


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_gone(pid: int) -> bool:
    # Soon, on a machine that is not busy.
    deadline = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(pid)


async def start_failing(spec: ServerSpec, log: Path) -> str:
    with pytest.raises(LaunchError) as caught:
        await start_server(spec, log)
    return str(caught.value)


async def test_a_ready_server_runs_and_has_no_exit_code(tmp_path):
    async with await start_server(stub(), tmp_path / "m.log") as server:
        assert is_alive(server.pid)
        assert server.exit_code() is None


async def test_stop_ends_it_and_may_be_called_twice(tmp_path):
    server = await start_server(stub(), tmp_path / "m.log")
    await server.stop()
    await server.stop()
    assert not is_alive(server.pid)
    assert server.exit_code() == -signal.SIGTERM


async def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    server = await start_server(stub("--stubborn", grace_s=0.2), tmp_path / "m.log")
    await server.stop()
    assert server.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize("is_stubborn", [False, True])
@pytest.mark.parametrize("is_told", [False, True])
def test_the_watchdog_alone_ends_a_server_however_it_is_asked_to(is_told, is_stubborn):
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if is_stubborn else ""
    code = f"import signal, sys; {ignore}sys.stderr.write('up\\n'); signal.pause()"
    command = [sys.executable, _watchdog.__file__, "0.1", "127.0.0.1", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, sys.executable, "-S", "-c", code], stdin=pipe, stdout=pipe, stderr=pipe
    ) as watchdog:
        assert watchdog.stdin is not None
        assert watchdog.stderr is not None
        assert watchdog.stderr.readline() == b"up\n"
        if is_told:
            watchdog.terminate()
        else:
            watchdog.stdin.close()
        try:
            assert watchdog.wait(60) == -(signal.SIGKILL if is_stubborn else signal.SIGTERM)
        finally:
            watchdog.kill()


async def test_stop_ends_the_children_of_the_server_too(tmp_path):
    child_pid = tmp_path / "pid"
    server = await start_server(stub("--child-pid", str(child_pid)), tmp_path / "m.log")
    await server.stop()
    assert wait_gone(int(child_pid.read_text()))


async def test_children_of_a_server_that_died_by_itself_are_ended(tmp_path):
    child_pid = tmp_path / "pid"
    async with await start_server(stub("--child-pid", str(child_pid)), tmp_path / "m.log") as s:
        os.kill(s.pid, signal.SIGKILL)
        assert wait_gone(int(child_pid.read_text()))


async def test_a_death_later_on_is_seen_as_its_exit_code(tmp_path):
    async with await start_server(stub(), tmp_path / "m.log") as server:
        os.kill(server.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_gone, server.pid)
        await asyncio.to_thread(server._process.wait, 60)
        assert server.exit_code() == -signal.SIGKILL


async def test_killing_the_watchdog_kills_the_server(tmp_path):
    async with await start_server(stub(), tmp_path / "m.log") as server:
        server._process.kill()
        assert await asyncio.to_thread(wait_gone, server.pid)


async def test_cancelling_stop_kills_at_once(tmp_path):
    server = await start_server(stub("--stubborn", grace_s=600), tmp_path / "m.log")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await server.stop()
    assert wait_gone(server.pid)


def never_ready(timeout_s: float) -> ServerSpec:
    return ServerSpec(kind="stub", names=("m", "n"), argv=stub().argv, start_timeout_s=timeout_s)


async def test_cancelling_a_start_leaves_no_process(tmp_path):
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start_server(never_ready(60), tmp_path / "m.log"), 0.5)
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_a_port_that_is_taken_is_chosen_again(tmp_path):
    spec = stub("--die-once", str(tmp_path / "once"))
    async with await start_server(spec, tmp_path / "m.log") as server:
        assert server.exit_code() is None


async def test_a_port_that_is_always_taken_is_given_up(tmp_path):
    log = tmp_path / "m.log"
    message = await start_failing(stub("--die", "1", "--say", "Address already in use"), log)
    assert "was taken by another program" in message
    assert log.read_text().count("in use") == _starting.PORT_TRIES


async def test_a_failed_start_names_the_likely_cause_and_shows_the_log(tmp_path):
    said = "ModuleNotFoundError: No module named 'torch'"
    message = await start_failing(stub("--die", "3", "--say", said), tmp_path / "m.log")
    assert "torch is not installed: pip install 'selfeval-orchestrator[embedded]'" in message
    assert message.endswith(said)


async def test_a_program_that_is_not_there_is_named(tmp_path):
    spec = ServerSpec(kind="stub", names=("m",), argv=lambda *_: ("no-such-program",))
    assert "no such file or folder" in await start_failing(spec, tmp_path / "m.log")


async def test_a_server_that_never_lists_its_model_times_out_and_is_ended(tmp_path):
    before = set(psutil.Process().children(recursive=True))
    # More time where it did not even answer.
    message = ""
    for timeout_s in (1, 5, 25):
        message = await start_failing(never_ready(timeout_s), tmp_path / "m.log")
        if "does not list" in message:
            break
    assert "was not ready in time (/v1/models does not list n)" in message
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_the_key_is_in_the_environment_and_nowhere_else(tmp_path):
    log = tmp_path / "m.log"
    async with await start_server(stub("--say-key"), log) as server:
        process = psutil.Process(server.pid)
        assert process.environ()[KEY_VARIABLE] == server.api_key
        assert server.api_key not in " ".join(process.cmdline())
        assert server.api_key not in repr(server)
        assert "my key is ***" in server.log.tail()


async def test_two_servers_have_different_keys_and_ports(tmp_path):
    async with (
        await start_server(stub(), tmp_path / "a.log") as a,
        await start_server(stub(), tmp_path / "b.log") as b,
    ):
        assert a.api_key != b.api_key
        assert a.base_url != b.base_url


async def test_the_log_is_readable_by_its_owner_only(tmp_path):
    log = tmp_path / "servers" / "m.log"
    async with await start_server(stub("--say", "hello"), log) as server:
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert server.log.tail() == "hello"


async def test_a_second_start_does_not_show_the_first_ones_log(tmp_path):
    log = tmp_path / "m.log"
    log.write_text("old news\n")
    async with await start_server(stub("--say", "new"), log) as server:
        assert server.log.tail() == "new"
        assert "old news" in log.read_text()


async def test_a_server_does_not_share_our_session_or_group(tmp_path):
    async with await start_server(stub(), tmp_path / "m.log") as server:
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) == server.pid


ORPHANING = """
import asyncio, signal, sys
from pathlib import Path
# Tests that `nohup` started would ignore it, as it asks.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.path.insert(0, {folder!r})
from test_supervisor import stub
from launch._starting import start_server
async def main():
    server = await start_server(stub("--child-pid", {child!r}), Path({log!r}))
    print(server.pid, flush=True)
    await asyncio.sleep(120)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_server_is_left_when_we_are_ended_by(number, tmp_path):
    child = tmp_path / "pid"
    script = ORPHANING.format(
        folder=str(STUB.parent), child=str(child), log=str(tmp_path / "m.log")
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with ours:
        assert ours.stdout is not None
        pid = int(ours.stdout.readline())
        ours.send_signal(number)
        assert wait_gone(pid)
        assert wait_gone(int(child.read_text()))


KEEPING = ORPHANING.replace(
    "await asyncio.sleep(120)", "print(server.keep(), flush=True); await server.stop()"
)


def test_a_kept_server_outlives_us_and_ends_with_its_children_on_sigterm(tmp_path):
    child = tmp_path / "pid"
    script = KEEPING.format(folder=str(STUB.parent), child=str(child), log=str(tmp_path / "m.log"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    pid, watchdog = map(int, done.stdout.split())
    try:
        # Longer than the watchdog takes to see that its parent is another one.
        time.sleep(2.5)
        assert is_alive(pid)
    finally:
        os.kill(watchdog, signal.SIGTERM)
    assert wait_gone(pid)
    assert wait_gone(int(child.read_text()))
    assert wait_gone(watchdog)
