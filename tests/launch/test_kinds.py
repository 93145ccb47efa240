import itertools
import subprocess
import sys

import pytest
from pydantic import ValidationError

from launch import embedded, fake, vllm
from launch.embedded import server
from orchestrator.errors import LaunchError, OrchestratorError, UsageError
from orchestrator.serving import ServedModel, ServeOptions

OWN = (sys.executable, "-P", "-m", "orchestrator.plugins")


def options(command: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(command[::2], command[1::2], strict=True))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"--dtype": "float32", "--device": "cpu"}),
        ({"dtype": "bfloat16", "device": "cuda:1"}, {"--dtype": "bfloat16", "--device": "cuda:1"}),
        ({"threads": 2}, {"--threads": "2"}),
        ({"max_model_len": 64}, {"--max-model-len": "64"}),
        ({"kv_cache_mb": 512}, {"--kv-cache-mb": "512"}),
    ],
)
def test_embedded_settings_become_its_command_line(tmp_path, settings, expected):
    command = embedded.argv(embedded.Config(**settings), (("a", tmp_path), ("b", tmp_path)), 4242)
    assert command[:5] == (*OWN, "launch.embedded.server")
    assert command[5:9] == ("--model", f"a={tmp_path}", "--model", f"b={tmp_path}")
    assert command[9:13] == ("--host", "127.0.0.1", "--port", "4242")
    assert options(command[5:]).items() >= expected.items()


def test_what_is_left_to_the_embedded_server_is_not_on_its_command_line(tmp_path):
    command = embedded.argv(embedded.Config(), (("a", tmp_path),), 4242)
    assert not {"--threads", "--max-model-len"} & set(command)


def test_weights_that_end_in_a_number_state_the_quality_of_a_fake_model():
    models = (ServedModel("a", "fake:0.7"), ServedModel("b", "fake:large"))
    command = fake.argv(models, 4242)
    assert command[:5] == (*OWN, "launch._fake_server")
    address = ("--port", "4242", "--host", "127.0.0.1")
    assert command[5:] == (*address, "--model", "a", "--model", "b", "--quality", '{"a": 0.7}')


def test_serving_the_fake_server_is_its_command_line():
    asked = ServeOptions(("a", "b:0.3"), host="::1", port=4242)
    command = fake.Launch(fake.Config()).serve_command(asked)
    assert command[:5] == (*OWN, "launch._fake_server")
    address = ("--port", "4242", "--host", "::1")
    assert command[5:] == (
        *address,
        "--model",
        "a",
        "--model",
        "b:0.3",
        "--quality",
        '{"b:0.3": 0.3}',
    )


@pytest.mark.parametrize(("threads", "expected"), [(None, {}), (3, {"--threads": "3"})])
def test_serving_embedded_models_is_its_command_line(tmp_path, threads, expected):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    asked = ServeOptions((f"a={tmp_path}",), port=0, threads=threads, dtype="bfloat16")
    command = embedded.Launch(embedded.Config()).serve_command(asked)
    assert command[:5] == (*OWN, "launch.embedded.server")
    assert options(command[5:]) == {
        "--model": f"a={tmp_path}", "--host": "127.0.0.1", "--port": "0", "--dtype": "bfloat16",
        "--device": "cpu", "--attention-tokens": "4096", **expected,
    }  # fmt: skip


def test_a_kind_that_can_not_be_served_says_so():
    with pytest.raises(
        UsageError, match="this kind can't be started by `orchestrator servers serve`"
    ):
        vllm.Launch(vllm.Config()).serve_command(ServeOptions(("a",)))


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_a_device_of_torch_is_taken(device):
    assert embedded.Config(device=device).device == device


def test_a_device_without_float64_is_refused_with_what_to_use_instead():
    with pytest.raises(ValidationError, match=r"no float64.*use cpu or cuda"):
        embedded.Config(device="mps")
    options = server.parser().parse_args(["--model", "m=folder", "--device", "mps"])
    with pytest.raises(OrchestratorError, match=r"no float64.*use cpu or cuda"):
        server._serve(options)


@pytest.mark.parametrize(
    "settings",
    [{"device": "gpu --port 1"}, {"threads": 0}, {"dtype": "int8"}, {"port": 1}, {"rules": {}}],
)
def test_a_setting_that_embedded_does_not_know_is_refused(settings):
    with pytest.raises(ValidationError):
        embedded.Config(**settings)


def test_the_launch_kinds_import_without_torch():
    code = "import sys, launch.embedded, launch.fake; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("module", ["_fake_server", "_spec", "_watchdog"])
def test_what_begins_with_every_server_loads_nothing_of_recipes_and_settings(module):
    heavy = {"orchestrator.recipe", "orchestrator.contracts", "pydantic", "numpy", "yaml"}
    code = f"import sys, launch.{module}; print(*sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_identity_of_an_embedded_model_holds_what_decides_its_numbers(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    plain = embedded.Launch(embedded.Config()).identity(str(tmp_path))
    assert (plain["kind"], plain["dtype"]) == ("embedded", "float32")
    other = embedded.Launch(embedded.Config(dtype="bfloat16", threads=2)).identity(str(tmp_path))
    assert {key for key in plain if plain[key] != other[key]} == {"dtype"}


def test_the_name_decides_what_a_fake_model_is():
    plain = fake.Launch(fake.Config()).identity("a")
    assert plain != fake.Launch(fake.Config()).identity("b")
    assert plain == fake.Launch(fake.Config(start_timeout_s=1)).identity("a")


async def test_a_model_name_with_an_equals_sign_is_refused(tmp_path):
    with pytest.raises(LaunchError, match="must not hold"):
        await embedded.Launch(embedded.Config()).start((ServedModel("a=b", "w"),), tmp_path / "log")


async def test_the_fake_server_is_launched_and_ended(tmp_path):
    models = (ServedModel("a", "fake:0.8"), ServedModel("b", "toy"))
    server = await fake.Launch(fake.Config()).start(models, tmp_path / "fake.log")
    assert server.exit_code() is None
    await server.stop()
    assert server.exit_code() is not None


def vllm_argv(**settings: object) -> tuple[str, ...]:
    model = ServedModel("m", "/models/m")
    return vllm.argv(vllm.Config.model_validate(settings), "/bin/vllm", model, 4242)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["--dtype", "auto"]),
        ({}, ["--max-logprobs", "64"]),
        ({}, ["--generation-config", "vllm"]),
        ({}, ["--logprobs-mode", "raw_logprobs"]),
        ({}, ["--enable-prompt-tokens-details"]),
        ({"dtype": "float32"}, ["--dtype", "float32"]),
        ({"max_model_len": 4096}, ["--max-model-len", "4096"]),
        ({"gpu_memory_utilization": 0.5}, ["--gpu-memory-utilization", "0.5"]),
        ({"tensor_parallel_size": 2}, ["--tensor-parallel-size", "2"]),
        ({"quantization": "fp8"}, ["--quantization", "fp8"]),
        ({"enforce_eager": True}, ["--enforce-eager"]),
        ({"max_num_seqs": 8}, ["--max-num-seqs", "8"]),
        ({"max_num_batched_tokens": 2048}, ["--max-num-batched-tokens", "2048"]),
        ({}, ["--seed", "0"]),
        ({"lora_modules": {"a": "/l"}}, ["--enable-lora", "--lora-modules", "a=/l"]),
        ({"lora_modules": {"a": "/l"}}, ["--served-model-name", "m"]),
        ({"lora_modules": {"m": "/l"}}, ["--served-model-name", "m:base"]),
        ({"extra_args": ["--block-size", "16"]}, ["--block-size", "16"]),
    ],
)
def test_vllm_settings_become_its_command_line(settings, expected):
    command = list(vllm_argv(**settings))
    assert command[:3] == ["/bin/vllm", "serve", "/models/m"]
    assert command[command.index("--port") + 1] == "4242"
    assert command[command.index("--host") + 1] == "127.0.0.1"
    at = command.index(expected[0])
    assert command[at : at + len(expected)] == expected


def test_what_is_left_to_vllm_is_not_on_its_command_line():
    left = {
        "--max-model-len",
        "--gpu-memory-utilization",
        "--enforce-eager",
        "--enable-lora",
    }
    assert not left & set(vllm_argv())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"HF_HUB_OFFLINE": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120"}),
        ({"gpus": [2, 3]}, {"CUDA_VISIBLE_DEVICES": "2,3"}),
        ({"cpu_kv_cache_gb": 1}, {"VLLM_CPU_KVCACHE_SPACE": "1"}),
        ({"cpu_threads": 1}, {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}),
        ({"env": {"HF_HUB_OFFLINE": "0"}}, {"HF_HUB_OFFLINE": "0"}),
    ],
)
def test_vllm_settings_become_its_environment(settings, expected):
    assert vllm.Launch(vllm.Config(**settings)).environment().items() >= expected.items()


def test_what_is_left_to_vllm_is_not_in_its_environment():
    assert (
        not {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}
        & vllm.Launch(vllm.Config()).environment().keys()
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"extra_args": ["--api-key", "k"]}, "--api-key is set by this program"),
        ({"extra_args": ["--port=1"]}, "--port is set by this program"),
        ({"extra_args": ["--speculative-config", "{}"]}, "log-probabilities are wrong"),
        ({"env": {"VLLM_API_KEY": "k"}}, "VLLM_API_KEY is set by this program"),
        ({"dtype": "int8"}, "dtype"),
        ({"gpus": []}, "gpus"),
    ],
)
def test_a_setting_that_vllm_can_t_have_is_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        vllm.Config(**settings)


def test_paths_of_vllm_settings_start_from_the_recipes_folder(tmp_path):
    given = {"command": "bin/vllm", "lora_modules": {"a": "adapters/a"}}
    config = vllm.Config.model_validate(given, context={"folder": str(tmp_path)})
    assert config.command == str(tmp_path / "bin" / "vllm")
    assert config.lora_modules == {"a": str(tmp_path / "adapters" / "a")}
    assert vllm.Config(command="my-vllm").command == "my-vllm"


@pytest.mark.parametrize(
    "settings",
    [
        {"gpus": [0]},
        {"extra_args": ["--data-parallel-size", "2"]},
        {"extra_args": ["--data-parallel-size=2"]},
        {"extra_args": ["-dp", "2"]},
    ],
)
def test_a_vllm_server_that_chooses_its_gpus_is_not_placed(settings):
    config = vllm.Config.model_validate(settings)
    assert vllm.Launch(config).footprint((ServedModel("m", "absent"),)) is None


def test_a_vllm_server_that_is_placed_is_split_over_its_gpus_and_takes_its_share():
    config = vllm.Launch(vllm.Config()).placed(("2", "3"), 0.4).config
    command = vllm.argv(config, "vllm", ServedModel("m", "/m"), 1)
    found = dict(itertools.pairwise(command))
    assert (found["--tensor-parallel-size"], found["--gpu-memory-utilization"]) == ("2", "0.4")
    assert vllm.Launch(config).environment()["CUDA_VISIBLE_DEVICES"] == "2,3"


@pytest.mark.parametrize(
    ("settings", "differs"),
    [
        ({"dtype": "float32"}, {"dtype"}),
        ({"quantization": "fp8"}, {"quantization"}),
        ({"extra_args": ["--kv-cache-dtype", "fp8"]}, {"extra_args"}),
        ({"extra_args": ["--max-logprobs", "5"]}, {"extra_args"}),
        ({"cpu_threads": 1, "start_timeout_s": 5}, set()),
    ],
)
def test_the_identity_of_a_vllm_model_holds_what_decides_its_numbers(tmp_path, settings, differs):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    plain = vllm.Launch(vllm.Config()).identity(str(tmp_path))
    other = vllm.Launch(vllm.Config(**settings)).identity(str(tmp_path))
    assert {key for key in plain | other if plain.get(key) != other.get(key)} == differs


def test_an_adapter_is_part_of_a_vllm_models_identity(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = vllm.Config(lora_modules={"a": str(adapter)})
    with pytest.raises(LaunchError, match="not a LoRA adapter"):
        vllm.Launch(config).identity(str(tmp_path))
    (adapter / "adapter_model.safetensors").write_bytes(b"1")
    first = vllm.Launch(config).identity(str(tmp_path))
    (adapter / "adapter_model.safetensors").write_bytes(b"2")
    assert vllm.Launch(config).identity(str(tmp_path)) != first


def test_without_a_vllm_program_it_is_said_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("launch._spec.PROJECT", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError, match=r"make vllm"):
        vllm.Launch(vllm.Config()).find_command()


def test_the_own_venv_of_vllm_is_found_beside_the_project(tmp_path, monkeypatch):
    program = tmp_path / ".venv-vllm" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("launch._spec.PROJECT", tmp_path)
    assert vllm.Launch(vllm.Config()).find_command() == str(program)


def test_a_server_starts_without_a_warning_of_the_interpreter():
    command = [*OWN, "launch._fake_server", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
