"""The command of a server's actor, and what is refused before one is started."""

import importlib.util
import json
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from launch.fake import Launch
from orchestrator.cli import main
from orchestrator.errors import EXIT_INTERRUPTED, UsageError
from orchestrator.interface import api
from orchestrator.placement import GIB, Node, Size
from orchestrator.recipe.settings import Cluster
from orchestrator.runner.servers import ray
from orchestrator.runner.servers.ray import (
    RayActor,
    _run,
    _Running,
    address_of,
    nodes_of,
    ray_actors,
    sized,
)
from orchestrator.runner.servers.ray_driver import NODE_LOST, _none_of, _options
from orchestrator.runner.servers.slurm import carriers, check, places_on
from orchestrator.store import RunDirectory

RECIPE = {
    "name": "made",
    "models": {
        "a": {"server": {"kind": "fake"}, "weights": "fake:0.2"},
        "judge": {
            "server": {"kind": "fake", "start_timeout_s": 31},
            "weights": "j:1",
            "replicas": 3,
        },
    },
    "dataset": {"kind": "demo", "n": 4},
    "methods": [{"kind": "pointwise", "judges": ["judge"]}],
}


@pytest.fixture
def installed(monkeypatch):
    """Ray of a version, as far as it is looked for."""

    def make(version):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(metadata, "version", lambda name: version)

    return make


def test_an_actor_asks_for_what_the_recipe_says():
    actor = RayActor(Cluster(cpus=8, gpus=4, memory="64G"), ("m",), "10.0.0.1:6379")
    command = actor.command(("python", "--elsewhere"))
    assert command[0] == sys.executable
    asked = _options(command[4:])
    assert (asked.address, asked.cpus, asked.gpus) == ("10.0.0.1:6379", 8, 4)
    assert asked.memory == 64 * 2**30
    assert asked.words == ["python", "--elsewhere"]


def test_an_actor_without_gpus_and_memory_asks_for_none():
    asked = _options(RayActor(Cluster(), ("m",), "auto").command(("x",))[4:])
    assert (asked.cpus, asked.gpus, asked.memory, asked.avoid) == (1, 0, 0, "")


def test_a_node_is_avoided_once():
    actor = RayActor(Cluster(), ("m",), "auto")
    actor.avoid = "5ab8cd03e384"
    assert _options(actor.command(("x",))[4:]).avoid == "5ab8cd03e384"
    assert _options(actor.command(("x",))[4:]).avoid == ""


def test_the_planned_node_is_preferred_once_and_lost_ones_are_never_taken():
    actor = RayActor(Cluster(), ("m",), "auto")
    actor.prefer, actor.avoid, actor.lost = "5ab8", "77aa", ("77aa", "cd03")
    asked = _options(actor.command(("x",))[4:])
    assert (asked.prefer, asked.avoid, asked.lost) == ("5ab8", "", "77aa,cd03")
    actor.prefer, actor.avoid = "5ab8", "e384"
    asked = _options(actor.command(("x",))[4:])
    assert (asked.prefer, asked.avoid, asked.lost) == ("", "e384", "77aa,cd03")
    assert _options(actor.command(("x",))[4:]).prefer == ""


def test_some_nodes_are_excluded_by_a_selector_of_labels():
    assert _none_of(["5ab8"]) == "!5ab8"
    assert _none_of(["5ab8", "77aa"]) == "!in(5ab8,77aa)"


@pytest.mark.parametrize(
    ("said", "node"),
    [
        (f"Ray: no node has room\n{NODE_LOST}5ab8cd03e384\n", "5ab8cd03e384"),
        ("Ray: ActorDiedError: its worker process has died\n", ""),
        (f"the server writes: {NODE_LOST}5ab8cd03e384\n", ""),
    ],
)
def test_a_node_that_is_lost_is_told_from_a_server_that_crashed(said, node):
    assert RayActor(Cluster(), ("m",), "auto").lost_machine(said) == node


def test_nodes_are_those_that_live_and_have_cpus():
    def node(name, *, alive=True, **has):
        return {"NodeID": 4 * name, "Alive": alive, "Resources": has}

    found = sized([
        node("77aa", CPU=8.0, GPU=2.0, memory=8.0 * GIB, object_store_memory=1.0),
        node("5ab8", CPU=2.0, memory=1.0 * GIB),
        node("head", memory=1.0),
        node("dead", alive=False, CPU=2.0),
    ])  # fmt: skip
    assert found == (
        Node("5ab85ab85ab8", Size(2, 0, GIB)),
        Node("77aa77aa77aa", Size(8, 2, 8 * GIB)),
    )


@pytest.fixture
def two_nodes(monkeypatch):
    """A cluster of two nodes with two CPUs each."""
    nodes = (Node("n1", Size(2, 0, GIB)), Node("n2", Size(2, 0, GIB)))
    monkeypatch.setattr("orchestrator.runner.servers.slurm.nodes_of", lambda _: nodes)


def test_servers_that_do_not_fit_together_run_in_waves(two_nodes, prepared):
    placed = places_on(prepared(cluster={"cpus": 2, "models": {"a": {"cpus": 1}}}), "ray")
    assert placed.turns() is not None
    assert placed.words() == (
        "nodes: n1, n2 (2 CPUs, 1.0 GiB each)",
        "servers: a (n2); judge (room for 1 of 3 replicas and n1)",
    )


def test_a_server_that_fits_on_no_node_is_refused_unless_ray_adds_nodes(two_nodes, prepared):
    large = {"models": {"judge": {"gpus": 8}}}
    with pytest.raises(UsageError, match="no node of the Ray cluster has room for") as error:
        places_on(prepared(cluster=large), "ray")
    assert "set cluster.autoscaling: true" in str(error.value)
    placed = places_on(prepared(cluster={**large, "autoscaling": True}), "ray")
    assert placed.turns() is None
    assert len(*(one.shares for one in placed.servers if "judge" in one.models)) == 3


def test_where_ray_does_not_answer_it_alone_places(monkeypatch, caplog):
    class Ended:
        stdout = b""

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr("orchestrator.runner.servers.ray.subprocess.run", lambda *_, **__: Ended)
    assert nodes_of("10.0.0.1:6379") == ()
    assert "cannot list the nodes of Ray at 10.0.0.1:6379, so Ray alone places" in caplog.text


def test_the_driver_gets_the_variables_of_ray(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("OTHER", "x")
    found = RayActor(Cluster(), ("m",), "auto").environment()
    assert found["RAY_AUTH_MODE"] == "token"
    assert "OTHER" not in found


def test_the_address_is_the_recipes_or_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert address_of(Cluster(address="10.0.0.1:6379")) == "10.0.0.1:6379"
    assert address_of(Cluster()) == "10.0.0.2:6379"
    monkeypatch.delenv("RAY_ADDRESS")
    assert address_of(Cluster()) == "auto"


@pytest.mark.parametrize("address", ["ray://head:10001", "local"])
def test_what_is_no_node_of_a_cluster_is_refused(address, monkeypatch):
    with pytest.raises(UsageError, match="on a node of the cluster"):
        address_of(Cluster(address=address))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match="on a node of the cluster"):
        address_of(Cluster())


def test_without_ray_the_extra_is_named(prepared, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'selfeval-orchestrator\[ray\]'"):
        carriers(prepared(), "ray")


def test_an_old_ray_is_refused(installed):
    installed("2.9.3")
    with pytest.raises(UsageError, match=r"needs Ray 2\.50 or newer, found 2\.9\.3"):
        ray_actors(Cluster())
    installed("2.60.0")
    assert isinstance(ray_actors(Cluster())(("a",)), RayActor)
    installed("3.0.0rc1")
    assert isinstance(ray_actors(Cluster())(("a",)), RayActor)


def test_the_plan_has_a_line_for_each_server_and_needs_no_ray(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RECIPE | {"cluster": {"models": {"judge": {"gpus": 2}}}}))
    first, second = api.plan(path, run_dir=tmp_path / "run", on="ray").servers
    assert first.startswith("a: ")
    assert "--address=auto --cpus=1 -- " in first
    assert second.startswith("judge (3 times): ")
    assert "--gpus=2" in second


def test_what_can_not_be_an_actor_is_refused(prepared, monkeypatch):
    with pytest.raises(UsageError, match="unknown model 'jugde'"):
        check(prepared(cluster={"models": {"jugde": {}}}), "ray")
    with pytest.raises(UsageError, match="--keep-servers can't be used with --on ray"):
        check(prepared(), "ray", keep_servers=True)
    monkeypatch.setattr(Launch, "carried", ())
    own: Any = RECIPE["models"]
    reached = {"far": {"base_url": "http://127.0.0.1:9"}}
    for models in (own, own | reached, reached | own):
        with pytest.raises(UsageError, match="of kind 'fake' can't be started with --on ray"):
            check(prepared(models=models), "ray")


class FakeRay:
    """A Ray whose tasks end in the order in which they begin; `ends` has each one's code or error.

    Attributes:
        most: The most tasks that ran at a time.
        begun: Words of the tasks that began.
        silent: Tasks of which nothing is heard.
        lost: Nodes that Ray has lost.
        cancelled: Tasks that are waited for no more.
    """

    class exceptions:  # noqa: N801 (a module of Ray)
        RayError = RuntimeError

    def __init__(self, ends):
        self.ends, self.begun, self.most, self.n_running, self.asked = ends, [], 0, 0, {}
        self.silent, self.lost, self.cancelled = set(), [], []

    def remote(self, **asked):
        self.asked = asked
        return lambda _task: SimpleNamespace(remote=self.begin)

    def begin(self, _folder, words):
        self.begun.append(words[0])
        self.n_running += 1
        self.most = max(self.most, self.n_running)
        return f"{words[0]}{self.begun.count(words[0])}"

    def nodes(self):
        return [{"NodeID": name, "Alive": name not in self.lost} for name in ("n1", "n2")]

    def wait(self, tasks, timeout):
        assert timeout
        heard = [task for task in tasks if task not in self.silent][:1]
        return heard, [task for task in tasks if task not in heard]

    def cancel(self, task, *, force):
        assert force
        self.n_running -= 1
        self.cancelled.append(task)

    def get(self, task):
        self.n_running -= 1
        end = self.ends.get(task[0], 0)
        if isinstance(end, Exception):
            raise end
        return end


def run_shards(names, n_at_once):
    _run([[name, "--run-dir=x"] for name in names], Size(4, 1, GIB), n_at_once)


@pytest.fixture
def silent(monkeypatch, tmp_path):
    """A Ray of which one task, the first of `a`, says nothing."""
    fake = FakeRay({})
    fake.silent = {"a1"}
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(ray, "_SILENT_S", 0.0)
    monkeypatch.chdir(tmp_path)
    return fake


def test_a_task_that_is_silent_since_a_node_was_lost_is_begun_again(silent):
    def wait(tasks, timeout):
        # Lost while it runs.
        silent.lost = ["n2"]
        return FakeRay.wait(silent, tasks, timeout)

    silent.wait = wait
    run_shards("ab", 2)
    assert (silent.begun, silent.cancelled) == (["a", "b", "a"], ["a1"])


def test_only_who_wrote_nothing_for_long_since_a_node_was_lost_is_silent(tmp_path):
    status = RunDirectory(tmp_path).status_path
    status.write_text("1")
    task = _Running(["run", f"--run-dir={tmp_path}"], {"n1"})
    assert not task.is_silent({"n1", "n2"})
    task._since -= 1e6
    assert not task.is_silent({"n1"})
    assert task.is_silent({"n1", "n2"})
    status.write_text("2")
    assert not task.is_silent({"n1", "n2"})


@pytest.mark.parametrize(
    ("ends", "n_at_once", "begun"),
    [
        ({}, 4, "abcd"),
        ({}, 1, "abcd"),
        ({"a": 1, "b": RuntimeError("node lost")}, 2, "abcd"),
        # Stopped by its user: what waits would begin for nothing.
        ({"a": EXIT_INTERRUPTED}, 2, "ab"),
    ],
)
def test_tasks_run_some_at_a_time_and_each_end_is_said(monkeypatch, capsys, ends, n_at_once, begun):
    fake = FakeRay(ends)
    monkeypatch.setitem(sys.modules, "ray", fake)
    run_shards("abcd", n_at_once)
    assert "".join(fake.begun) == begun
    assert fake.most == n_at_once
    wanted = {"num_cpus": 4, "num_gpus": 1, "memory": GIB, "max_retries": 3}
    assert fake.asked.items() >= wanted.items()
    lines = dict(line.split(" --run-dir=x: ", 1) for line in capsys.readouterr().err.splitlines())
    assert lines.keys() == set(begun)
    for name, end in ends.items():
        said = "was lost 4 times: node lost" if isinstance(end, Exception) else f"exit code {end}"
        assert lines[name].endswith(said)


def test_a_plan_of_shards_says_what_each_takes_of_a_node(two_nodes, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.json").write_text(json.dumps(RECIPE | {"cluster": {"cpus": 2, "gpus": 1}}))
    assert main(["plan", "r.json", "--shards", "2", "--on", "ray"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "; each takes 2 CPUs, 1 GPU" in shown
    assert "ray_driver" not in shown
    assert not (tmp_path / "runs").exists()
