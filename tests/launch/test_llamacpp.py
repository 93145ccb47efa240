import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from launch import llamacpp
from orchestrator.errors import LaunchError
from orchestrator.serving import ServedModel


def gguf(path, content: bytes = b"") -> str:
    path.write_bytes(b"GGUF" + content)
    return str(path)


def argv(**settings: object) -> list[str]:
    model = ServedModel("m", "/models/m.gguf")
    config = llamacpp.Config.model_validate(settings)
    return list(llamacpp.argv(config, "/bin/llama-server", model, 4242))


def environment(**settings):
    return llamacpp.Launch(llamacpp.Config(**settings)).environment()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["--model", "/models/m.gguf"]),
        ({}, ["--alias", "m"]),
        ({}, ["--host", "127.0.0.1"]),
        ({}, ["--port", "4242"]),
        ({}, ["--metrics"]),
        ({}, ["--no-slots"]),
        ({}, ["--no-context-shift"]),
        ({"max_model_len": 1024, "slots": 3}, ["--ctx-size", "3072"]),
        ({"slots": 3}, ["--parallel", "3"]),
        ({"threads": 2}, ["--threads", "2"]),
        ({"n_gpu_layers": 0}, ["--n-gpu-layers", "0"]),
        ({"cache_type": "f32"}, ["--cache-type-k", "f32", "--cache-type-v", "f32"]),
        ({"flash_attention": "off"}, ["--flash-attn", "off"]),
        ({"chat_template": "/t.jinja"}, ["--chat-template-file", "/t.jinja"]),
        ({"lora": ["/a.gguf", "/b.gguf"]}, ["--lora", "/a.gguf", "--lora", "/b.gguf"]),
        ({"extra_args": ["--numa", "isolate"]}, ["--numa", "isolate"]),
    ],
)
def test_settings_become_its_command_line(settings, expected):
    command = argv(**settings)
    assert command[0] == "/bin/llama-server"
    at = command.index(expected[0])
    assert command[at : at + len(expected)] == expected


def test_what_is_left_to_the_server_is_not_on_its_command_line():
    left = {"--threads", "--n-gpu-layers", "--chat-template-file", "--lora", "--api-key"}
    assert not left & set(argv())


def test_it_is_kept_off_the_network_and_has_no_cache_in_main_memory():
    found = environment()
    assert (found["LLAMA_ARG_OFFLINE"], found["LLAMA_ARG_CACHE_RAM"]) == ("1", "0")
    assert (
        llamacpp.Launch(llamacpp.Config(env={"LLAMA_ARG_CACHE_RAM": "64"})).environment() != found
    )


def test_it_sees_the_gpus_named():
    assert "CUDA_VISIBLE_DEVICES" not in llamacpp.Launch(llamacpp.Config()).environment()
    assert (
        llamacpp.Launch(llamacpp.Config(gpus=(1, 3))).environment()["CUDA_VISIBLE_DEVICES"] == "1,3"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"extra_args": ["--api-key", "k"]}, "--api-key is set by this program"),
        ({"extra_args": ["--port=1"]}, "--port is set by this program"),
        ({"extra_args": ["--model-draft", "d.gguf"]}, "guessed ahead"),
        ({"extra_args": ["--spec-type", "ngram"]}, "guessed ahead"),
        ({"env": {"LLAMA_API_KEY": "k"}}, "LLAMA_API_KEY is set by this program"),
        ({"cache_type": "int3"}, "cache_type"),
        ({"slots": 0}, "slots"),
    ],
)
def test_a_setting_that_it_can_not_have_is_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        llamacpp.Config.model_validate(settings)


def test_paths_start_from_the_recipes_folder(tmp_path):
    given = {"command": "bin/llama-server", "chat_template": "t.jinja", "lora": ["a.gguf"]}
    config = llamacpp.Config.model_validate(given, context={"folder": str(tmp_path)})
    assert config.command == str(tmp_path / "bin" / "llama-server")
    assert config.chat_template == str(tmp_path / "t.jinja")
    assert config.lora == (str(tmp_path / "a.gguf"),)
    assert llamacpp.Config(command="my-server").command == "my-server"


@pytest.mark.parametrize(
    ("settings", "differs"),
    [
        ({"cache_type": "f32"}, {"cache_type"}),
        ({"extra_args": ["--rope-scale", "2"]}, {"extra_args"}),
        ({"env": {"GGML_X": "1"}}, {"env"}),
        ({"slots": 9, "threads": 1, "max_model_len": 64, "start_timeout_s": 5}, set()),
    ],
)
def test_the_identity_holds_what_decides_the_numbers(tmp_path, settings, differs):
    weights = gguf(tmp_path / "m.gguf")
    plain = llamacpp.Launch(llamacpp.Config()).identity(weights)
    other = llamacpp.Launch(llamacpp.Config.model_validate(settings)).identity(weights)
    assert {key for key in plain | other if plain.get(key) != other.get(key)} == differs


@pytest.mark.parametrize("setting", ["chat_template", "lora"])
def test_the_content_of_a_named_file_is_part_of_the_identity(tmp_path, setting):
    weights, file = gguf(tmp_path / "m.gguf"), tmp_path / "file"
    named = {setting: [str(file)] if setting == "lora" else str(file)}
    config = llamacpp.Config.model_validate(named)
    with pytest.raises(LaunchError, match="no such file"):
        llamacpp.Launch(config).identity(weights)
    file.write_text("one")
    first = llamacpp.Launch(config).identity(weights)
    file.write_text("another")
    assert llamacpp.Launch(config).identity(weights) != first


def test_the_identity_is_that_of_the_content(tmp_path):
    names = ("m.gguf", "template.jinja", "lora.gguf")
    first, second = tmp_path, tmp_path / "elsewhere"
    second.mkdir()
    gguf(first / "m.gguf")
    (first / "template.jinja").write_text("{{ messages }}")
    gguf(first / "lora.gguf", b"lora")
    for name in names:
        (second / f"renamed-{name}").write_bytes((first / name).read_bytes())

    def identity(folder, prefix=""):
        model, template, lora = (str(folder / f"{prefix}{name}") for name in names)
        config = llamacpp.Config.model_validate({"chat_template": template, "lora": [lora]})
        return llamacpp.Launch(config).identity(model)

    before = identity(first)
    assert before["weights"] == hashlib.sha256((first / "m.gguf").read_bytes()).hexdigest()
    assert identity(second, "renamed-") == before
    (first / "m.gguf").write_bytes((first / "m.gguf").read_bytes() + b"other")
    after = identity(first)
    assert {key for key in before if before[key] != after[key]} == {"weights"}


def test_every_part_of_a_cut_model_is_part_of_the_identity(tmp_path):
    first = gguf(tmp_path / "m-00001-of-00002.gguf")
    gguf(tmp_path / "m-00002-of-00002.gguf", b"a")
    gguf(tmp_path / "other-00002-of-00002.gguf")
    before = llamacpp.Launch(llamacpp.Config()).identity(first)
    gguf(tmp_path / "m-00002-of-00002.gguf", b"bb")
    assert llamacpp.Launch(llamacpp.Config()).identity(first) != before
    assert len(llamacpp.parts(tmp_path / "m-00001-of-00002.gguf")) == 2


def test_a_folder_with_one_model_stands_for_its_first_file(tmp_path):
    first = gguf(tmp_path / "m-00001-of-00002.gguf")
    gguf(tmp_path / "m-00002-of-00002.gguf")
    assert str(llamacpp.resolve(str(tmp_path))) == first


def test_a_folder_with_several_models_is_refused(tmp_path):
    gguf(tmp_path / "a.gguf")
    gguf(tmp_path / "b.gguf")
    with pytest.raises(LaunchError, match=r"2 GGUF models \(a\.gguf, b\.gguf\); name one"):
        llamacpp.resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("weights", "said"),
    [("absent.gguf", "no such file"), ("bundled:nobody", "make_gguf.py --bundled")],
)
def test_weights_that_are_not_there_are_a_launch_error(weights, said):
    with pytest.raises(LaunchError, match=said):
        llamacpp.resolve(weights)


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"\x08\0\0\0")
    with pytest.raises(LaunchError, match=r"is no GGUF file; .*convert_hf_to_gguf"):
        llamacpp.resolve(str(file))


def test_without_a_program_it_is_said_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("launch._spec.PROJECT", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError, match=r"set_up_llamacpp\.py"):
        llamacpp.Launch(llamacpp.Config()).find_command()


def test_the_program_beside_the_project_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("launch._spec.PROJECT", tmp_path)
    (tmp_path / ".llamacpp").mkdir()
    program = tmp_path / ".llamacpp" / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert llamacpp.Launch(llamacpp.Config()).find_command() == str(program)


def test_a_server_that_is_placed_sees_its_gpu_and_has_all_layers_there():
    config = llamacpp.Launch(llamacpp.Config()).placed(("3",), 0.4).config
    found = llamacpp.Launch(config).environment()
    assert found["CUDA_VISIBLE_DEVICES"] == "3"
    assert (found["LLAMA_ARG_SPLIT_MODE"], found["LLAMA_ARG_MAIN_GPU"]) == ("none", "0")
    command = list(llamacpp.argv(config, "llama-server", ServedModel("m", "/m.gguf"), 1))
    assert command[command.index("--n-gpu-layers") + 1] == "999"


def test_a_server_on_several_gpus_has_equal_shares_of_its_layers_on_each():
    config = llamacpp.Launch(llamacpp.Config(n_gpu_layers=7)).placed(("1", "3"), 0.4).config
    found = llamacpp.Launch(config).environment()
    assert found["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert (found["LLAMA_ARG_SPLIT_MODE"], found["LLAMA_ARG_TENSOR_SPLIT"]) == ("layer", "1,1")
    assert config.n_gpu_layers == 7


@pytest.mark.parametrize(
    "settings",
    [
        {"n_gpu_layers": 0},
        {"gpus": [1]},
        {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
        {"extra_args": ["--device", "none"]},
    ],
)
def test_a_server_on_the_cpu_or_told_its_gpus_is_not_placed(settings):
    config = llamacpp.Config.model_validate(settings)
    assert llamacpp.Launch(config).footprint((ServedModel("m", "absent.gguf"),)) is None


def test_a_file_that_is_cut_short_is_named(tmp_path):
    file = gguf(tmp_path / "m.gguf", b"\x03\0\0\0")
    with pytest.raises(LaunchError, match=r"m\.gguf: the GGUF header .* cut short"):
        llamacpp.Launch(llamacpp.Config()).footprint((ServedModel("m", file),))


def test_the_name_of_a_cut_model_is_no_pattern(tmp_path):
    first = gguf(tmp_path / "m[1]-00001-of-00002.gguf")
    gguf(tmp_path / "m[1]-00002-of-00002.gguf", b"a")
    gguf(tmp_path / "m1-00002-of-00002.gguf", b"another")
    assert [part.name for part in llamacpp.parts(Path(first))] == [
        "m[1]-00001-of-00002.gguf",
        "m[1]-00002-of-00002.gguf",
    ]
