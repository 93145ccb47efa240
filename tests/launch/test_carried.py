"""A server that a carrier brings to another machine; here the other machine is this one."""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from launch import _supervisor, _watchdog
from launch._spec import ServerSpec
from launch._starting import CARRIED, start_server
from launch._supervisor import Server
from orchestrator.errors import LaunchError, NodeLostError, SchedulerError
from orchestrator.serving import Carried, Carrier, ServedModel
from tests.fake.launch import Config, Scripted
from tests.launch.test_supervisor import wait_gone

ROOT = Path(__file__).parents[2]
MODELS = (ServedModel("m", "fake:0.5"),)


class Near(Carrier):
    """Runs everything here, and says what it was asked."""

    def __init__(self, *before):
        self.avoid = ""
        self.avoided = []
        self.before = before

    def command(self, words):
        self.avoided.append(self.avoid)
        self.avoid = ""
        return (*self.before, *words)

    def environment(self):
        return {"SLURMD_NODENAME": "n7"}


def launch(carrier, **settings):
    made = Scripted(Config(**settings))
    made.carrier = carrier
    return made


async def started(carrier, log):
    server = await launch(carrier).start(MODELS, log)
    assert isinstance(server, Server)
    assert isinstance(server, Carried)
    return server


async def health(server, key):
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{server.base_url}/v1/models") as reply,
    ):
        return reply.status


async def test_a_server_is_told_where_it_is_by_its_machine(tmp_path):
    server = await started(Near(), tmp_path / "m.log")
    try:
        assert server.node == "n7"
        assert await health(server, server.api_key) == 200
        assert await health(server, "another") == 401
        process = psutil.Process(server.pid)
        watchdog = process.parent()
        assert watchdog is not None
        # The key comes by the pipe: no command line has it, nor the watchdog's environment.
        assert server.api_key in process.environ().values()
        assert server.api_key not in " ".join([*process.cmdline(), *watchdog.cmdline()])
        assert server.api_key not in watchdog.environ().values()
        assert process.environ()["SLURMD_NODENAME"] == "n7"
    finally:
        await server.stop()
    assert wait_gone(server.pid)
    assert server.exit_code() == 0, "it ended in order"


async def test_it_ends_when_what_stands_for_it_here_is_killed(tmp_path):
    server = await started(Near(), tmp_path / "m.log")
    await asyncio.to_thread(server.kill)
    assert wait_gone(server.pid)


async def test_it_tells_that_its_machine_ended_it(tmp_path):
    server = await started(Near(), tmp_path / "m.log")
    watchdog = psutil.Process(server.pid).parent()
    assert watchdog is not None
    watchdog.terminate()
    assert wait_gone(server.pid)
    await server.stop()
    assert server.was_told


async def test_it_does_not_tell_so_where_we_ended_it(tmp_path):
    server = await started(Near(), tmp_path / "m.log")
    await server.stop()
    assert not server.was_told


async def test_it_does_not_tell_so_where_we_killed_it(tmp_path):
    server = await started(Near(), tmp_path / "m.log")
    await asyncio.to_thread(server.kill)
    assert not server.was_told


async def test_it_tells_so_too_if_what_stands_for_it_here_lives_on(tmp_path):
    server = await started(Near("sh", "-c", '"$@"; exec sleep 60', "sh"), tmp_path / "m.log")
    watchdog = psutil.Process(server.pid).parent()
    assert watchdog is not None
    watchdog.terminate()
    assert wait_gone(watchdog.pid)
    await asyncio.to_thread(server.kill)
    assert server.was_told


async def test_it_ends_when_it_is_cut_off_from_its_client(tmp_path, monkeypatch):
    monkeypatch.setattr(_supervisor, "LEASE_S", 2.0)
    monkeypatch.setattr(_supervisor, "_BEAT_S", 0.1)
    server = await started(Near(), tmp_path / "m.log")
    monkeypatch.setattr(_supervisor, "_BEAT_S", 600.0)
    try:
        assert wait_gone(server.pid)
    finally:
        await server.stop()


async def test_it_lives_while_its_client_does(tmp_path, monkeypatch):
    monkeypatch.setattr(_supervisor, "LEASE_S", 3.0)
    monkeypatch.setattr(_supervisor, "_BEAT_S", 0.1)
    server = await started(Near(), tmp_path / "m.log")
    await asyncio.sleep(4)
    assert server.exit_code() is None
    await server.stop()


def test_what_brings_it_ends_with_this_process(tmp_path):
    """Also while it waits in a queue and reads nothing: a job must not wait for a dead client."""
    code = (
        "import asyncio, sys; from pathlib import Path; from tests.launch.test_carried import *;"
        "asyncio.run(launch(Near('sh', '-c', 'echo $$ >&2; exec sleep 60'))"
        ".start(MODELS, Path(sys.argv[1])))"
    )
    log = tmp_path / "m.log"
    with subprocess.Popen([sys.executable, "-c", code, log], cwd=ROOT) as process:
        end = time.monotonic() + 30
        while not (log.exists() and log.read_text().strip()):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.kill()
    assert wait_gone(int(log.read_text().split()[-1]))


class Queue(Near):
    """Gets its machine once it was asked for what it waits."""

    queues = True

    def __init__(self, asked):
        self.asked = asked
        waits = f'until [ -e {asked} ]; do sleep 0.1; done; sleep 0.5; exec "$@"'
        super().__init__("sh", "-c", waits, "sh")

    def waiting(self):
        self.asked.touch()
        return "job 3 is pending (Resources)"


async def test_a_wait_in_a_queue_is_not_part_of_the_start(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(_supervisor, "_QUEUE_S", 0.2)
    caplog.set_level("INFO")
    spec = launch(None).spec(MODELS)
    carrier = Queue(tmp_path / "asked")
    server = await start_server(replace(spec, start_timeout_s=60.0), tmp_path / "m.log", carrier)
    await server.stop()
    assert caplog.text.count("job 3 is pending (Resources)") == 1


class Silent(Near):
    """A cluster whose scheduler is down."""

    def __init__(self):
        super().__init__("sh", "-c", "echo no answer >&2; exit 1")

    def was_silent(self, said):
        return "no answer" in said


async def test_a_scheduler_that_is_silent_says_nothing_of_the_server(tmp_path):
    with pytest.raises(SchedulerError, match="no answer"):
        await launch(Silent()).start(MODELS, tmp_path / "m.log")


class Lossy(Near):
    """A cluster that has lost a node, as far as its command or its scheduler says so."""

    def __init__(self, said="", down=""):
        super().__init__("sh", "-c", f"echo '{said}' >&2; exit 1")
        self.prefer = "n2"
        self.down = down

    def lost_machine(self, said):
        return "n3" if "n3 is gone" in said else ""

    def is_down(self, machine):
        return machine == self.down


@pytest.mark.parametrize(
    ("carrier", "node"), [(Lossy("n3 is gone"), "n3"), (Lossy("busy", down="n2"), "n2")]
)
async def test_a_start_on_a_node_that_is_lost_names_the_node(tmp_path, carrier, node):
    with pytest.raises(NodeLostError, match=f"has lost node {node}, where m had to start") as error:
        await launch(carrier).start(MODELS, tmp_path / "m.log")
    assert error.value.node == node


async def test_a_start_that_fails_elsewhere_says_nothing_of_a_node(tmp_path):
    with pytest.raises(LaunchError) as error:
        await launch(Lossy("busy", down="n9")).start(MODELS, tmp_path / "m.log")
    assert not isinstance(error.value, NodeLostError)


@pytest.mark.parametrize(("said", "was_lost"), [("n7 is gone", True), ("n7 was killed", False)])
async def test_it_tells_whether_its_node_was_lost_with_it(tmp_path, said, was_lost):
    class Failing(Near):
        def lost_machine(self, said):
            return "n7" if "n7 is gone" in said else ""

    carrier = Failing("sh", "-c", f'"$@"; echo {said} >&2', "sh")
    server = await started(carrier, tmp_path / "m.log")
    psutil.Process(server.pid).kill()
    await asyncio.to_thread(server._process.wait, 60)
    await server.stop()
    assert server.was_lost is was_lost


async def test_a_container_is_put_around_the_server_only(tmp_path):
    class Contained(Near):
        def inside(self, words):
            return ("env", "INSIDE=1", *words)

    server = await started(Contained(), tmp_path / "m.log")
    assert psutil.Process(server.pid).environ()["INSIDE"] == "1"
    await server.stop()


async def test_a_carrier_that_fails_at_once_is_an_error_with_what_it_said(tmp_path):
    carrier = Near("sh", "-c", "echo no such partition >&2; exit 1")
    with pytest.raises(LaunchError, match="no such partition"):
        await launch(carrier).start(MODELS, tmp_path / "m.log")


async def test_its_end_is_told_from_a_wait_although_its_output_ends_first(tmp_path):
    carrier = Near("sh", "-c", "exec >&-; sleep 0.5; exit 7")
    with pytest.raises(LaunchError, match="exited with code 7") as error:
        await launch(carrier).start(MODELS, tmp_path / "m.log")
    assert "no machine took it" not in str(error.value)


async def test_a_machine_that_nobody_gets_is_an_error_in_time(tmp_path):
    with pytest.raises(LaunchError, match=r"no machine took it within 0\.2 s"):
        await launch(Near("sh", "-c", "sleep 60"), start_timeout_s=0.2).start(
            MODELS, tmp_path / "m.log"
        )


async def test_after_a_start_that_failed_another_machine_is_asked_for(tmp_path):
    carrier = Near()
    spec = ServerSpec(kind="k", names=("m",), argv=lambda *_: ("false",))
    with pytest.raises(LaunchError):
        await start_server(spec, tmp_path / "m.log", carrier)
    assert carrier.avoid == "n7"


async def test_where_only_the_machine_to_avoid_is_free_it_is_taken(tmp_path):
    carrier = Near(
        "sh",
        "-c",
        f'test -e {tmp_path}/second || {{ touch {tmp_path}/second; exit 1; }}; exec "$@"',
        "sh",
    )
    carrier.avoid = "n7"
    server = await started(carrier, tmp_path / "m.log")
    await server.stop()
    assert carrier.avoided == ["n7", ""]


class Talking(Near):
    """Writes what a prolog, a profile and an epilog may write to the stdout of a step."""

    def command(self, words):
        said = "echo Welcome to n7 8000 nodes; echo told; printf 'no line end'"
        return ("sh", "-c", f'{said}; "$@"; code=$?; echo told; exit $code', "sh", *words)


async def test_what_others_write_to_its_stdout_is_passed_over(tmp_path):
    server = await started(Talking(), tmp_path / "m.log")
    try:
        assert server.node == "n7"
        assert psutil.pid_exists(server.pid)
        assert await health(server, server.api_key) == 200
    finally:
        await server.stop()
    assert not server.was_told


def test_a_watchdog_elsewhere_that_is_told_nothing_ends(tmp_path):
    pipe = subprocess.PIPE
    with subprocess.Popen(CARRIED, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        mark, line = _watchdog.PLACED, process.stdout.readline()
        assert line.startswith(mark)
        host, port, _, rank = line.removeprefix(mark).split()
        assert host.count(b".") == 3
        assert int(port) > 0
        assert rank == b"0"
        process.stdin.close()
        assert process.wait(60) == 0


def test_variables_of_the_node_win_over_those_of_the_client(tmp_path):
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    told = {
        "arguments": [["1", "127.0.0.1", "0", sys.executable, "-c", code]],
        "lease_s": None,
        "env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "LANG": "C", "PATH": "/client"},
        "here": {"PATH": "/client", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "OTHER": "1"},
    }
    pipe = subprocess.PIPE
    # As the scheduler and `module load` have changed what the client gave.
    changed = {"CUDA_VISIBLE_DEVICES": "2", "SLURM_STEP_ID": "5", "PATH": "/cuda:/client"}
    # It is alone, whatever its number in a larger job.
    changed["SLURM_PROCID"] = "3"
    own = {"OTHER": "1", "PWD": "/", **changed}
    with subprocess.Popen(
        CARRIED, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=own
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
        found = json.loads(process.stderr.readline())
    assert (found["CUDA_VISIBLE_DEVICES"], found["LANG"]) == ("2", "C")
    assert found["SLURM_STEP_ID"] == "5"
    assert found["PATH"] == "/cuda:/client"
    assert not {"OTHER", "PWD"} & found.keys()
