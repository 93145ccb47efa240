import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from launch import embedded, fake
from orchestrator.errors import LaunchError
from orchestrator.serving import ServedModel


def options(command: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(command[::2], command[1::2], strict=True))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"--dtype": "float32", "--device": "cpu"}),
        ({"dtype": "bfloat16", "device": "cuda:1"}, {"--dtype": "bfloat16", "--device": "cuda:1"}),
        ({"threads": 2}, {"--threads": "2"}),
        ({"max_model_len": 64, "max_rows": 8}, {"--max-model-len": "64", "--max-rows": "8"}),
        ({"prefix_cache_mb": 0}, {"--prefix-cache-mb": "0"}),
    ],
)
def test_embedded_settings_become_its_command_line(tmp_path, settings, expected):
    command = embedded.argv(embedded.Config(**settings), (("a", tmp_path), ("b", tmp_path)), 4242)
    assert command[:4] == (sys.executable, "-P", "-m", "launch.embedded.server")
    assert command[4:8] == ("--model", f"a={tmp_path}", "--model", f"b={tmp_path}")
    assert command[8:12] == ("--host", "127.0.0.1", "--port", "4242")
    assert options(command[4:]).items() >= expected.items()


def test_what_is_left_to_the_embedded_server_is_not_on_its_command_line(tmp_path):
    command = embedded.argv(embedded.Config(), (("a", tmp_path),), 4242)
    assert not {"--threads", "--max-model-len"} & set(command)


@pytest.mark.parametrize(
    ("rules", "expected"), [(None, []), ({"b": 1, "a": [2]}, ["--rules", '{"a":[2],"b":1}'])]
)
def test_fake_settings_become_its_command_line(rules, expected):
    models = (ServedModel("a", "x"), ServedModel("b", "y"))
    command = fake.argv(fake.Config(rules=rules), models, 4242)
    assert command[:4] == (sys.executable, "-P", "-m", "launch._fake_server")
    assert list(command[4:]) == ["--port", "4242", "--model", "a", "--model", "b", *expected]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (None, {"rules": [], "quality": {"a": 0.7}}),
        ([{"text": "x"}], {"rules": [{"text": "x"}], "quality": {"a": 0.7}}),
        ({"seed": 1}, {"seed": 1, "quality": {"a": 0.7}}),
        ({"quality": {"a": 0.1}}, {"quality": {"a": 0.1}}),
    ],
)
def test_weights_that_end_in_a_number_state_the_quality_of_a_fake_model(rules, expected):
    models = (ServedModel("a", "fake:0.7"), ServedModel("b", "fake:large"))
    command = fake.argv(fake.Config(rules=rules), models, 4242)
    assert json.loads(command[-1]) == expected


@pytest.mark.parametrize("device", ["cpu", "mps", "cuda", "cuda:1"])
def test_a_device_of_torch_is_taken(device):
    assert embedded.Config(device=device).device == device


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


def test_the_identity_of_an_embedded_model_holds_what_decides_its_numbers(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    plain = embedded.identity(embedded.Config(), str(tmp_path))
    assert (plain["kind"], plain["dtype"]) == ("embedded", "float32")
    other = embedded.identity(embedded.Config(dtype="bfloat16", threads=2), str(tmp_path))
    assert {key for key in plain if plain[key] != other[key]} == {"dtype"}


def test_the_rules_and_the_name_decide_what_a_fake_model_is():
    plain = fake.identity(fake.Config(), "a")
    assert plain != fake.identity(fake.Config(), "b")
    assert plain != fake.identity(fake.Config(rules={"delay_s": 1}), "a")
    assert plain == fake.identity(fake.Config(stop_grace_s=1), "a")


async def test_a_model_name_with_an_equals_sign_is_refused(tmp_path):
    with pytest.raises(LaunchError, match="must not hold"):
        await embedded.start(embedded.Config(), (ServedModel("a=b", "w"),), tmp_path / "log")


async def test_the_fake_server_is_launched_and_ended(tmp_path):
    models = (ServedModel("a", "fake:0.8"), ServedModel("b", "toy"))
    server = await fake.start(fake.Config(), models, tmp_path / "fake.log")
    assert server.exit_code() is None
    await server.stop()
    assert server.exit_code() is not None
