"""Command lines and environments of servers that this machine can't run."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from launch import _sglang_main, llamacpp, sglang, vllm
from launch._foreign import ForeignLaunch
from launch._spec import beside
from launch._supervisor import likely_cause
from orchestrator.errors import LaunchError
from orchestrator.serving import ServedModel
from tests.launch.kinds import kind_in

MODEL = ServedModel("m", "/models/m")


def options(command: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in itertools.pairwise(command) if name.startswith("-")}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"--sampling-defaults": "openai", "--tp": "1", "--random-seed": "0"}),
        ({"tensor_parallel_size": 2}, {"--tp": "2"}),
        ({"context_length": 8192}, {"--context-length": "8192"}),
        ({"mem_fraction_static": 0.8}, {"--mem-fraction-static": "0.8"}),
        ({"quantization": "fp8", "dtype": "bfloat16"}, {"--quantization": "fp8"}),
        (
            {"lora_paths": {"a": "/l/a"}},
            {"--enable-lora": "--lora-paths", "--lora-paths": "a=/l/a"},
        ),
        ({"extra_args": ("--watchdog-timeout", "60")}, {"--watchdog-timeout": "60"}),
    ],
)
def test_sglang_settings_become_its_command_line(settings, expected):
    command = sglang.argv(sglang.Config(**settings), "/v/python", MODEL, 4242)
    assert command[:2] == ("/v/python", _sglang_main.__file__)
    always = {"--model-path": "/models/m", "--served-model-name": "m", "--port": "4242"}
    assert options(command).items() >= (always | expected).items()
    assert {"--enable-metrics", "--enable-cache-report"} <= set(command)


def test_sglang_is_deterministic_on_request_only():
    flag = "--enable-deterministic-inference"
    assert flag not in sglang.argv(sglang.Config(), "p", MODEL, 1)
    assert flag in sglang.argv(sglang.Config(deterministic=True), "p", MODEL, 1)


def test_sglang_states_numbers_before_the_temperature():
    found = sglang.Launch(sglang.Config(gpus=(0, 2), env={"X": "1"})).environment()
    assert found["SGLANG_RETURN_ORIGINAL_LOGPROB"] == "1"
    assert (found["CUDA_VISIBLE_DEVICES"], found["X"]) == ("0,2", "1")


@pytest.mark.parametrize("kind", [vllm, sglang])
@given(st.integers(2, 9), st.integers(1024, 65_535))
def test_parts_of_a_server_differ_in_their_rank_alone(kind, n, port):
    """All know how many they are and where rank 0 waits for them; that one alone answers."""
    config, hosts = kind.Config(tensor_parallel_size=n), [f"10.0.0.{r}" for r in range(1, n + 1)]
    parts = [kind.argv(config, "x", MODEL, port, hosts[0], (rank, hosts)) for rank in range(n)]
    of = [options(part) for part in parts]
    assert [part.pop("--node-rank") for part in of] == [str(rank) for rank in range(n)]
    assert {part["--nnodes"] for part in of} == {str(n)}
    master = of[0].get("--dist-init-addr") or f"{of[0]['--master-addr']}:{of[0]['--master-port']}"
    host, _, found = master.partition(":")
    assert host == "10.0.0.1"
    assert int(found) != port
    assert [part.pop("--host") for part in of] == ["10.0.0.1", *["127.0.0.1"] * (n - 1)]
    assert ["--headless" in part for part in parts] == [kind is vllm and r > 0 for r in range(n)]
    of_a_part = {"--node-rank", "--host"}
    rest = {
        tuple(
            word
            for before, word in itertools.pairwise(("", *part))
            if before not in of_a_part | {"env"} and word != "--headless"
        )
        for part in parts
    }
    assert len(rest) == 1
    assert "--nnodes" not in kind.argv(config, "x", MODEL, port, "10.0.0.1")


@pytest.mark.parametrize("module", [vllm, sglang])
@pytest.mark.parametrize(
    ("size", "stages", "n_nodes", "can"),
    [(16, (), 2, True), (1, (), 2, False), (3, (), 2, False), (1, ("-pp", "2"), 2, True),
     (8, ("--pp-size=3",), 3, True), (8, ("--pp-size=3",), 5, False)],
)  # fmt: skip
def test_a_model_is_shared_by_nodes_that_divide_its_parts(module, size, stages, n_nodes, can):
    kind = kind_in(module)(module.Config(tensor_parallel_size=size, extra_args=stages))
    assert (kind.no_split(n_nodes) == "") == can
    assert "one node" in kind_in(llamacpp)(llamacpp.Config()).no_split(2)


def test_two_servers_take_no_port_of_each_other():
    ports = [30_000, 30_001, 45_217]
    taken = [*ports, *(beside(port, n) for port in ports for n in (1, 2, 3))]
    assert len(set(taken)) == len(taken)
    assert all(1024 < port < 32_768 for port in taken[3:])


def test_the_key_reaches_sglang_and_no_command_line(tmp_path):
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(
        "import os, sys\nprint(sys.argv[1:], 'ORCHESTRATOR_SERVER_KEY' in os.environ)\n"
    )
    env = {**os.environ, "ORCHESTRATOR_SERVER_KEY": "secret", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, _sglang_main.__file__, "--port", "1"]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert said == "['--port', '1', '--api-key', 'secret'] False\n"


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (sglang, {"extra_args": ("--api-key=x",)}),
        (sglang, {"extra_args": ("--allow-auto-truncate",)}),
        (sglang, {"extra_args": ("--speculative-algorithm", "EAGLE")}),
        (sglang, {"extra_args": ("--lora-paths", "a=/l")}),
        (sglang, {"env": {"SGLANG_RETURN_ORIGINAL_LOGPROB": "0"}}),
    ],
)
def test_settings_that_are_ours_or_spoil_numbers_are_refused(module, settings):
    with pytest.raises(ValidationError):
        module.Config(**settings)


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (sglang, {"python": "/no/such/python"}),
    ],
)
async def test_a_program_that_is_missing_is_named(module, settings, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    models = (ServedModel("m", str(tmp_path)),)
    with pytest.raises(LaunchError, match="/no/such/"):
        await kind_in(module)(module.Config(**settings)).start(models, tmp_path / "log")


@pytest.mark.parametrize("module", [sglang, vllm])
def test_identity_holds_what_decides_the_numbers(module, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    plain = kind_in(module)(module.Config()).identity(str(tmp_path))
    other = kind_in(module)(module.Config(dtype="bfloat16", gpus=(1,))).identity(str(tmp_path))
    assert {name for name in plain if plain[name] != other[name]} == {"dtype"}
    assert plain["kind"] == Path(module.__file__).stem


def test_an_adapter_is_part_of_an_sglang_models_identity_wherever_it_lies(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    found = []
    for folder, content in (("one", b"1"), ("same", b"1"), ("other", b"2")):
        adapter = tmp_path / folder
        adapter.mkdir()
        (adapter / "adapter_model.safetensors").write_bytes(content)
        config = sglang.Config.model_validate(
            {"lora_paths": {"a": folder}}, context={"folder": str(tmp_path)}
        )
        assert config.lora_paths == {"a": str(adapter)}
        found.append(sglang.Launch(config).identity(str(tmp_path)))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("module", "setting"), [(sglang, "lora_paths"), (vllm, "lora_modules")], ids=["sglang", "vllm"]
)
async def test_adapters_none_of_which_would_answer_are_refused(module, setting, tmp_path):
    config = module.Config(**{setting: {"other": "/l"}})
    with pytest.raises(LaunchError, match=r"'m': .* names other, .* name of the model"):
        await kind_in(module)(config).start((MODEL,), tmp_path / "log")


def test_a_folder_without_an_adapter_is_refused_by_sglang(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(LaunchError, match="not a LoRA adapter"):
        sglang.Launch(sglang.Config(lora_paths={"a": str(tmp_path)})).identity(str(tmp_path))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "raise"),
        ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied", "another"),
    ],
)
def test_likely_causes_of_a_start_that_failed(log, words):
    assert words in likely_cause(log, 1)


@pytest.mark.parametrize(
    ("module", "options_of", "split", "share"),
    [
        (sglang, lambda c: sglang.argv(c, "p", MODEL, 1), "--tp", "--mem-fraction-static"),
        (
            vllm,
            lambda c: vllm.argv(c, "v", MODEL, 1),
            "--tensor-parallel-size",
            "--gpu-memory-utilization",
        ),
    ],
)
def test_a_server_that_is_placed_takes_these_gpus_and_that_share(module, options_of, split, share):
    placed = kind_in(module)(module.Config()).placed(("1", "3"), 0.4)
    found = options(options_of(placed.config))
    assert (found[split], found[share]) == ("2", "0.4")
    assert isinstance(placed, ForeignLaunch)
    assert placed.environment()["CUDA_VISIBLE_DEVICES"] == "1,3"


@pytest.mark.parametrize("module", [sglang, vllm])
def test_a_server_that_is_told_its_gpus_is_not_placed(module):
    assert kind_in(module)(module.Config(gpus=(0,))).footprint((MODEL,)) is None
