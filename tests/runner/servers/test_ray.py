"""The command of a server's actor, and what is refused before one is started."""

import importlib.util
import json
import sys
from importlib import metadata

import pytest

from launch.fake import FakeLaunch
from orchestrator.errors import UsageError
from orchestrator.recipe.cluster import Cluster
from orchestrator.recipe.load import load
from orchestrator.runner import api
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.servers.ray import RayActor, address_of, ray_actors
from orchestrator.runner.servers.ray_driver import _options
from orchestrator.runner.servers.slurm import carriers, check, commands

RECIPE = {
    "name": "made",
    "models": {
        "a": {"server": {"kind": "fake"}, "weights": "fake:0.2"},
        "judge": {"server": {"kind": "fake", "stop_grace_s": 1}, "weights": "j:1", "replicas": 3},
    },
    "dataset": {"kind": "demo", "n": 4},
    "methods": [{"kind": "pointwise", "judges": ["judge"]}],
}


@pytest.fixture
def prepared(tmp_path):
    """Loads a recipe with changes."""

    def make(**changes):
        path = tmp_path / "r.json"
        path.write_text(json.dumps(RECIPE | changes))
        return prepare(load(path), tmp_path)

    return make


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
    monkeypatch.setattr(FakeLaunch, "carried", ())
    with pytest.raises(UsageError, match="servers of kind 'fake' can't be started with --on ray"):
        commands(prepared(), "ray")
