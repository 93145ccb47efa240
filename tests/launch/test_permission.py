"""Programs that a recipe may have this machine run without `--allow-code`."""

import os

import pytest

from launch import embedded, fake, llamacpp, sglang, vllm
from orchestrator import plugins
from orchestrator.errors import LaunchError, RecipeError
from orchestrator.recipe.load import loads
from tests.launch.kinds import kind_in

HARMLESS = [
    (vllm, {}),
    (vllm, {"command": "vllm", "extra_args": ("--block-size", "16", "--swap-space=-1")}),
    (vllm, {"env": {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "2"}}),
    (sglang, {"extra_args": ("--chunked-prefill-size", "-1")}),
    (llamacpp, {"extra_args": ("-ngl", "3", "--numa", "isolate")}),
    (fake, {}),
    (embedded, {}),
]
NEEDING = [
    (vllm, {"command": "./evil.sh"}, "command"),
    (vllm, {"command": "sh"}, "command"),
    (vllm, {"env": {"LD_PRELOAD": "x.so"}}, "env"),
    (vllm, {"env": {"PYTHONPATH": "."}}, "env"),
    (vllm, {"env": {"VLLM_PLUGINS": "evil"}}, "env"),
    (vllm, {"extra_args": ("--trust-remote-code",)}, "extra_args"),
    (vllm, {"extra_args": ("--block-size", "16", "--middleware=evil.Run")}, "extra_args"),
    (vllm, {"extra_args": ("stray", "--block-size", "16")}, "extra_args"),
    (sglang, {"python": "./bin/python"}, "python"),
    (sglang, {"extra_args": ("--trust-remote-code",)}, "extra_args"),
    (llamacpp, {"command": "../llama-server"}, "command"),
    (llamacpp, {"extra_args": ("--log-file", "/etc/passwd")}, "extra_args"),
    (llamacpp, {"env": {"LD_LIBRARY_PATH": "."}}, "env"),
]


@pytest.mark.parametrize(("kind", "settings"), HARMLESS)
def test_what_only_changes_how_a_server_runs_needs_no_permission(kind, settings):
    assert kind_in(kind)(kind.Config(**settings)).programs() == ()


@pytest.mark.parametrize(("kind", "settings", "setting"), NEEDING)
def test_what_may_run_code_of_the_recipe_needs_permission(kind, settings, setting):
    assert [name for name, _ in kind_in(kind)(kind.Config(**settings)).programs()] == [setting]


RECIPE = """\
name: made
models:
  a:
    weights: bundled:novice
    server:
      kind: vllm
      command: ./evil.sh
dataset: {kind: demo, n: 2}
methods: [{kind: probdiff}]
"""


def test_a_recipe_that_names_a_program_is_refused_with_its_line(tmp_path):
    file = tmp_path / "made.yaml"
    with pytest.raises(RecipeError) as caught:
        loads(RECIPE.encode(), file)
    message = f"{file}:7: models.a.server: command: '{tmp_path}/evil.sh' is a program of the recipe"
    assert message in str(caught.value)
    assert "--allow-code" in str(caught.value)


def test_with_permission_it_is_not(tmp_path):
    loads(RECIPE.encode(), tmp_path / "made.yaml", allow_code=True)


def test_every_launch_kind_says_what_its_settings_would_run():
    for kind in plugins.kinds(plugins.LAUNCH):
        module = plugins.load(plugins.LAUNCH, kind)
        assert kind_in(module)(module.Config()).programs() == ()


@pytest.mark.parametrize("path", ["", ".", "bin", f"{os.pathsep}/usr/bin"])
def test_a_program_in_the_working_directory_is_never_found(tmp_path, monkeypatch, path):
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "a-program").write_text("#!/bin/sh\n")
        (folder / "a-program").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    launch = vllm.Launch(vllm.Config(command="a-program"))
    with pytest.raises(LaunchError, match="no command 'a-program'"):
        launch.find_command()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.find_command() == str(tmp_path / "a-program")


def test_a_set_up_in_the_working_directory_is_named_and_not_run(tmp_path, monkeypatch):
    program = tmp_path / ".venv-vllm" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("launch._spec.PROJECT", tmp_path / "elsewhere")
    with pytest.raises(LaunchError, match=r"there is one in '\.venv-vllm/bin/vllm' here"):
        vllm.Launch(vllm.Config()).find_command()


def test_the_setting_that_does_the_same_is_named():
    config = vllm.Config(extra_args=("--max-model-len", "4096", "--no-such-flag"))
    reasons = dict(reason.split(" is not", 1) for _, reason in vllm.Launch(config).programs())
    assert "there is a setting 'max_model_len'" in reasons["--max-model-len"]
    assert "there is" not in reasons["--no-such-flag"]
