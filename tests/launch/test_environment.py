"""Servers get what they need of our environment, and secrets stand in no recipe."""

import json
import os
from functools import partial
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from launch import _spec, llamacpp, sglang, vllm
from launch._spec import KEY_VARIABLE, ServerSpec, environment
from launch._starting import start_server
from orchestrator.cli import main
from orchestrator.errors import EXIT_USAGE, LaunchError
from tests.launch.test_supervisor import stub_argv

KINDS = (vllm, sglang, llamacpp)
HIDDEN = "correct-horse-battery"
SECRETS = (
    "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET",
    "GITHUB_TOKEN", "PGPASSWORD", "PGPASSFILE", "DATABASE_URL", "HF_TOKEN", "OPENAI_API_KEY",
    "VLLM_API_KEY", "MY_JUDGE", "HTTPS_PROXY", "http_proxy", "NETRC", "SSH_AUTH_SOCK",
    "DOCKER_AUTH_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "CUDA_SECRET", "HF_HUB_TOKEN",
)  # fmt: skip
LEFTOVERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "VLLM_PORT", "LLAMA_ARG_MODEL", "TORCHELASTIC_X")
NEEDED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "PYTHONPATH", "PYTHONWARNINGS", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME",
    "VLLM_LOGGING_LEVEL", "SGLANG_X", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
)  # fmt: skip


def stub(env_from: tuple[str, ...] = ()) -> ServerSpec:
    return ServerSpec(
        kind="stub",
        names=("m",),
        argv=partial(stub_argv, ("--model", "m")),
        env_from=env_from,
        start_timeout_s=20.0,
    )


@pytest.mark.parametrize("name", [*SECRETS, *LEFTOVERS])
def test_what_a_server_does_not_need_is_kept_from_it(name):
    assert _spec.inherited({name: HIDDEN}) == {}


@pytest.mark.parametrize("name", NEEDED)
def test_what_a_server_needs_is_handed_on(name):
    assert _spec.inherited({name: "1"}) == {name: "1"}


def test_what_a_kind_adds_wins_over_what_is_inherited():
    spec = ServerSpec(kind="k", names=(), argv=lambda *_: (), env={"TZ": "3"})
    env, hidden = environment({"TZ": "1", "LANG": "2", KEY_VARIABLE: "old"}, spec, "a key")
    assert (env["TZ"], env["LANG"], env[KEY_VARIABLE]) == ("3", "2", "a key")
    assert "a key" in hidden


async def test_a_running_server_has_none_of_our_secrets(tmp_path, monkeypatch):
    for name in SECRETS:
        monkeypatch.setenv(name, HIDDEN)
    async with await start_server(stub(), tmp_path / "m.log") as server:
        found = psutil.Process(server.pid).environ()
        watchdog = psutil.Process(server.pid).parent()
        assert watchdog is not None
        assert HIDDEN not in json.dumps([found, watchdog.environ()])
    assert found["PATH"] == os.environ["PATH"]


async def test_what_a_recipe_names_is_handed_on_and_stands_in_no_log(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_JUDGE", HIDDEN)
    log = tmp_path / "m.log"
    async with await start_server(stub(("MY_JUDGE",)), log) as server:
        assert psutil.Process(server.pid).environ()["MY_JUDGE"] == HIDDEN
        assert HIDDEN not in " ".join(psutil.Process(server.pid).cmdline())
        log.write_text(f"the key is {HIDDEN}\n")
        assert HIDDEN not in server.log.tail()
        assert "the key is" in server.log.tail()


async def test_a_variable_that_is_not_set_is_said_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.delenv("MY_JUDGE", raising=False)
    with pytest.raises(LaunchError, match="env_from: the environment variable MY_JUDGE is not set"):
        await start_server(stub(("MY_JUDGE",)), tmp_path / "m.log")


SHAPES = (
    "sk-" + "a1B2" * 8, "hf_" + "abcd" * 8, "ghp_" + "a1B2" * 9, "AKIA" + "A1B2" * 4,
    "glpat-" + "a1B2" * 5, "https://me:hunter2@proxy:3128",
    "eyJ" + "a1B2" * 4 + ".eyJ" + "a1B2" * 4,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", HIDDEN),
        ("MY_API_KEY", HIDDEN),
        ("DB_PASSWORD", HIDDEN),
        ("client_secret", HIDDEN),
        ("LANG", HIDDEN),
        *(("LANG", shape) for shape in SHAPES),
    ],
)
def test_a_secret_in_env_is_refused_with_the_way_to_pass_it(kind, name, value, monkeypatch):
    monkeypatch.setenv("OTHER_TOKEN", HIDDEN)
    with pytest.raises(ValidationError) as caught:
        kind.Config(env={name: value})
    (error,) = caught.value.errors()
    assert f"`env_from: [{name}]`" in error["msg"]
    assert value not in error["msg"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--hf-token", HIDDEN],
        [f"--hf-token={HIDDEN}"],
        ["--x", HIDDEN],
        *([shape] for shape in SHAPES),
        *([f"--x={shape}"] for shape in SHAPES),
    ],
)
def test_a_secret_among_arguments_is_refused(kind, arguments, monkeypatch):
    monkeypatch.setenv("OTHER_TOKEN", HIDDEN)
    with pytest.raises(ValidationError) as caught:
        kind.Config(extra_args=arguments)
    (error,) = caught.value.errors()
    assert "env_from" in error["msg"]
    assert arguments[-1].rpartition("=")[2] not in error["msg"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_secret_is_taken(kind):
    kind.Config(
        env={"TOKENIZERS_PARALLELISM": "false", "VLLM_LOGGING_LEVEL": "DEBUG"},
        env_from=["HF_TOKEN"],
        extra_args=["--max-num-batched-tokens", "8192", "--foo=bar", "--path", "/a/b:c@d"],
    )


@pytest.mark.parametrize("name", ["A=B", "", "1A", "A B", "-e"])
def test_what_is_no_name_of_a_variable_is_refused(name):
    with pytest.raises(ValidationError):
        vllm.Config(env_from=[name])


def test_a_secret_in_a_recipe_is_neither_shown_nor_stored(tmp_path: Path, capsys) -> None:
    secret = SHAPES[0]
    server = {"kind": "vllm", "env": {"HF_TOKEN": secret}, "extra_args": ["--api-token", secret]}
    recipe = {
        "name": "r",
        "models": {"m": {"server": server, "weights": "bundled:judge"}},
        "dataset": {"kind": "demo", "n": 2},
        "methods": [{"kind": "answers"}],
    }
    path = tmp_path / "r.json"
    path.write_text(json.dumps(recipe))
    assert main(["check", str(path)]) == EXIT_USAGE
    assert main(["run", str(path), "--run-dir", str(tmp_path / "run")]) == EXIT_USAGE
    said = capsys.readouterr()
    assert "env_from" in said.err + said.out
    assert secret not in said.err + said.out
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
