"""From a recipe and a made-up machine to servers in their places, and a run that keeps to them."""

import json
from typing import Any

import polars as pl
import pytest

import orchestrator
from orchestrator.errors import UsageError
from orchestrator.interface import api
from orchestrator.placement import Gpu
from orchestrator.recipe.load import load
from orchestrator.recipe.schema import Resources
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.servers.launched import launched_servers
from orchestrator.runner.servers.machine import inventory, visible
from orchestrator.runner.servers.placement import placed

GPUS = [("GPU-aa", Gpu("0", "made", 10, 9)), ("GPU-bb", Gpu("1", "made", 20, 19))]


def recipe(tmp_path, resources=None, models=None, n=6):
    def fake(quality, rules):
        return {"server": {"kind": "scripted", "rules": rules}, "weights": f"fake:{quality}"}

    servers = models or {"weak": fake(0.3, []), "strong": fake(0.9, {}), "judge": fake(1.0, None)}
    written = {
        "name": "made",
        "models": servers,
        "dataset": {"kind": "demo", "n": n},
        "methods": [
            {
                "kind": "pairwise_ranking",
                "judges": ["judge"],
                "prompt": "compact",
                "answer": {"max_tokens": 8},
            }
        ],
        "statistics": {"n_resamples": 50},
        "resources": resources or {},
    }
    path = tmp_path / "made.yaml"
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


def said(run_dir):
    lines = (run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["message"] for line in lines]


def bundled(name, kind="vllm", **settings):
    return {"server": {"kind": kind, **settings}, "weights": f"bundled:{name}"}


def three(kind="vllm", **settings):
    names = ("novice", "expert", "judge")
    return {name: bundled(name, kind, **settings) for name in names}


def test_a_bound_on_servers_runs_them_one_after_the_other(tmp_path):
    path = recipe(tmp_path, {"max_servers": 1})
    orchestrator.run(path, run_dir=tmp_path / "run")
    found = [line for line in said(tmp_path / "run") if "ing server" in line]
    assert found == [
        f"{what} server {name}"
        for name in ("weak", "strong", "judge")
        for what in ("starting", "stopping")
    ]


def test_the_rows_are_those_of_a_run_with_all_servers_at_once(tmp_path):
    def rows(name, resources):
        result = orchestrator.run(recipe(tmp_path, resources), run_dir=tmp_path / name)
        return {frame: result.frames[frame].sort(pl.all()) for frame in result.frames}

    waves, at_once = rows("waves", {"max_servers": 1}), rows("at_once", {})
    assert waves.keys() == at_once.keys()
    for name, frame in waves.items():
        assert frame.equals(at_once[name]), name


def test_a_complete_run_starts_no_server(tmp_path):
    path = recipe(tmp_path, {"max_servers": 1})
    orchestrator.run(path, run_dir=tmp_path / "run")
    n_before = len(said(tmp_path / "run"))
    orchestrator.run(path, run_dir=tmp_path / "run")
    assert not [line for line in said(tmp_path / "run")[n_before:] if "ing server" in line]


def test_the_plan_shows_the_waves(tmp_path):
    counted = api.plan(recipe(tmp_path, {"max_servers": 2}), run_dir=tmp_path / "run")
    assert counted.servers == ("wave 1 of 2: weak; strong", "wave 2 of 2: judge")


def test_the_plan_says_how_many_replicas_have_room(tmp_path):
    models: dict[str, dict[str, Any]] = {
        name: {"server": {"kind": "scripted", "start_timeout_s": 30 + n}, "weights": f"{name}:0.5"}
        for n, name in enumerate(("a", "b", "judge"))
    }
    models["a"]["replicas"] = 3
    path = recipe(tmp_path, {"max_servers": 4}, models)
    counted = api.plan(path, run_dir=tmp_path / "run")
    assert counted.servers == ("servers: a (room for 2 of 3 replicas); b; judge",)


def test_a_plan_of_servers_that_run_at_once_says_nothing_of_them(tmp_path):
    assert api.plan(recipe(tmp_path), run_dir=tmp_path / "run").servers == ()


@pytest.mark.models
def test_a_plan_for_other_gpus_says_what_runs_where(tmp_path):
    path = recipe(tmp_path, {"gpus": [24]}, three())
    machine, servers = api.plan(path, run_dir=tmp_path / "run").servers
    assert machine == "GPU 0 (as the recipe says, 22.1 of 24.0 GiB usable)"
    assert servers.startswith("servers: novice (GPU 0, ")
    assert servers.count("GPU 0") == 3


@pytest.mark.models
def test_replicas_take_a_gpu_each_and_the_plan_says_which(tmp_path):
    models = {**three(), "novice": {**bundled("novice"), "replicas": 4}}
    path = recipe(tmp_path, {"gpus": [24, 24, 24, 24]}, models)
    loaded = prepare(load(path))
    places = placed(loaded, inventory(loaded.recipe.settings.resources))
    found = launched_servers(
        list(loaded.models.values()),
        lambda name: tmp_path / name,
        placed=places.servers,
        allow_code=False,
    )
    assert [server.name for server in found["novice"]] == [
        "novice", "novice.2", "novice.3", "novice.4",
    ]  # fmt: skip
    # By what it was started with, its kind among that, a server that lives on is found again.
    kinds = {name: {one.kind for one in servers} for name, servers in found.items()}
    assert kinds == {
        name: {spec.server.kind} for name, spec in loaded.models.items() if spec.server
    }
    shown = [
        server.launch.config.model_dump()["env"]["CUDA_VISIBLE_DEVICES"]
        for server in found["novice"]
    ]
    assert sorted(shown) == ["0", "1", "2", "3"]
    (line,) = (line for line in places.words() if line.startswith("servers: novice"))
    assert all(f"GPU {number}, " in line for number in range(4))


@pytest.mark.models
def test_small_gpus_make_waves_with_the_judge_last(tmp_path):
    path = recipe(tmp_path, {"gpus": [1.2, 1.2]}, three(max_model_len=512))
    lines = api.plan(path, run_dir=tmp_path / "run").servers[1:]
    assert [line.split(" (")[0] for line in lines] == [
        "wave 1 of 2: novice",
        "wave 2 of 2: judge",
    ]


@pytest.mark.models
def test_models_of_one_process_get_one_each_where_no_gpu_has_room_for_all(tmp_path):
    models = three("embedded", device="cuda")
    wide = api.plan(recipe(tmp_path, {"gpus": [24]}, models), run_dir=tmp_path / "run").servers
    assert wide[1].startswith("servers: novice, expert, judge (GPU 0")
    narrow = api.plan(recipe(tmp_path, {"gpus": [1.6]}, models), run_dir=tmp_path / "run").servers
    assert len(narrow) > 2


@pytest.mark.models
def test_a_server_without_room_is_named_with_what_it_would_need(tmp_path):
    path = recipe(tmp_path, {"gpus": [0.2]}, three())
    with pytest.raises(UsageError, match=r"server of 'novice': it needs at least .* GiB"):
        orchestrator.run(path, run_dir=tmp_path / "run")


@pytest.mark.models
def test_a_plan_names_what_has_no_room_and_goes_on(tmp_path):
    path = recipe(tmp_path, {"gpus": [0.2]}, three())
    counted = api.plan(path, run_dir=tmp_path / "run")
    assert counted.left
    assert len(counted.servers) == 3
    assert counted.servers[0].startswith("no room for the server of 'novice': it needs at least")


def test_gpus_of_the_recipe_take_the_place_of_those_that_are_here():
    found = inventory(Resources(gpus=[80, 24], max_servers=3))
    assert [(gpu.index, gpu.total >> 30) for gpu in found.gpus] == [("0", 80), ("1", 24)]
    assert found.max_servers == 3


@pytest.mark.parametrize(
    ("names", "indices"),
    [
        (None, ["0", "1"]),
        ("1", ["1"]),
        ("1,0", ["1", "0"]),
        ("GPU-b", ["GPU-b"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["0"]),
    ],
)
def test_only_gpus_that_cuda_shows_are_used(names, indices):
    assert [gpu.index for gpu in visible(GPUS, names)] == indices
