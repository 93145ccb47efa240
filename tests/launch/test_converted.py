"""Model folders made of GGUF files: numbers, damage, locks and interruption."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from launch import _converted, _gguf, _gguf_model, _memory, _weights, llamacpp
from orchestrator import weights
from orchestrator.errors import LaunchError
from tests.launch.gguf_files import U32, changed, model, write
from tools import make_gguf

KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama tied": {"tie_word_embeddings": True},
    "llama one group": {"num_key_value_heads": 4, "rope_theta": 1e6},
    "llama wide heads": {"head_dim": 32},
    "qwen2": {"rope_theta": 1e6},
    "qwen2 tied": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32, "rope_theta": 1e6},
    "qwen3 tied": {"tie_word_embeddings": True, "head_dim": 16},
}
Q = gguf.GGMLQuantizationType


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


@torch.inference_mode()
def logits(made: Any) -> Any:
    ids = torch.randint(0, made.config.vocab_size, (2, 300), generator=torch.manual_seed(3))
    return made(input_ids=ids).logits


@pytest.mark.parametrize("name", KINDS)
def test_logits_are_those_of_the_model_that_was_written(name: str, tmp_path: Path) -> None:
    made = model(name.split()[0], **KINDS[name])
    folder = _weights.folder_now(str(write(tmp_path / "m.gguf", made)))
    assert (logits(loaded(folder)) - logits(made)).abs().max() <= 1e-5


@pytest.mark.parametrize("kind", [Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0])
def test_quantised_weights_are_those_that_ggml_reads(
    kind: gguf.GGMLQuantizationType, tmp_path: Path
) -> None:
    made = model("qwen2")
    file = write(tmp_path / "m.gguf", made, quantise=kind)
    found = load_file(_weights.folder_now(str(file)) / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    by_name = {names.get_name(name, (".weight", ".bias")): array for name, array in found.items()}
    for tensor in gguf.GGUFReader(file).tensors:
        known = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(by_name[tensor.name], known)


@pytest.mark.parametrize("kind", [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_XS])
def test_pieces_of_a_large_tensor_are_those_of_the_whole(
    kind: gguf.GGMLQuantizationType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_converted, "_CHUNK_NUMBERS", 256 * 7)
    made = model("qwen2", hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    shape = (256, 256 // block * block_bytes)
    raw = np.random.default_rng(0).integers(0, 60, shape, dtype=np.uint8)
    file = write(tmp_path / "m.gguf", made, given={"blk.0.ffn_up.weight": (raw, kind)})
    found = load_file(_weights.folder_now(str(file)) / "model.safetensors")
    known = gguf.dequantize(raw, kind)
    assert np.isfinite(known).all()
    assert np.array_equal(found["model.layers.0.mlp.up_proj.weight"], known)


def test_rotary_frequencies_of_llama_3_are_kept(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    wide = {"head_dim": 64, "hidden_size": 64, "num_attention_heads": 2}
    made = model("llama", rope_parameters=scaling, max_position_embeddings=131_072, **wide)
    plain = 500_000.0 ** -(np.arange(0, 64, 2) / 64)
    factors = (plain / made.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors.max() == pytest.approx(8)
    file = write(tmp_path / "m.gguf", made, given={"rope_freqs.weight": (factors, Q.F32)})
    found = loaded(_weights.folder_now(str(file)))
    assert torch.allclose(found.model.rotary_emb.inv_freq, made.model.rotary_emb.inv_freq)
    assert (logits(found) - logits(made)).abs().max() <= 1e-5
    file = write(tmp_path / "o.gguf", made, given={"rope_freqs.weight": (factors**2, Q.F32)})
    with pytest.raises(LaunchError, match="rotary frequencies are scaled in an unknown way"):
        _weights.folder_now(str(file))


def test_positions_that_are_scaled_linearly_are_kept(tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    made = model("llama", rope_parameters=scaling)

    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    found = loaded(_weights.folder_now(str(write(tmp_path / "m.gguf", made, change=change))))
    assert (logits(found) - logits(made)).abs().max() <= 1e-5


def test_a_file_that_our_own_tool_writes_comes_back(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_pad_token_id(0)

    made = model("llama", tie_word_embeddings=True)
    first = _weights.folder_now(str(write(tmp_path / "m.gguf", made, change=change)))
    make_gguf.write(first, tmp_path / "again.gguf", pre="smollm")
    again = _weights.folder_now(str(tmp_path / "again.gguf"))
    assert again != first
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        assert (again / name).read_text() == (first / name).read_text(), name
    ours, theirs = (load_file(one / "model.safetensors") for one in (first, again))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("number_format", ["f32", "f16"])
def test_a_quantised_file_is_written_in_another_format(number_format: str, tmp_path: Path) -> None:
    source, file = write(tmp_path / "m.gguf", model("llama"), quantise=Q.Q4_1), tmp_path / "out"
    make_gguf.write_dequantised(source, file.with_suffix(".gguf"), number_format)
    first, again = (_weights.folder_now(str(one)) for one in (source, file.with_suffix(".gguf")))
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        assert (again / name).read_text() == (first / name).read_text(), name
    before, after = (load_file(one / "model.safetensors") for one in (first, again))
    assert before.keys() == after.keys()
    for name, array in before.items():
        rounded = array.astype(np.float16) if number_format == "f16" and array.ndim > 1 else array
        assert np.array_equal(after[name], rounded.astype(np.float32)), name
    kinds = {tensor.tensor_type for tensor in gguf.GGUFReader(file.with_suffix(".gguf")).tensors}
    assert kinds == ({Q.F32} if number_format == "f32" else {Q.F32, Q.F16})


def test_the_identity_is_that_of_the_content(tmp_path: Path) -> None:
    made = model("qwen2", num_hidden_layers=1)
    file = write(tmp_path / "m.gguf", made)
    before = _weights.identity(str(file))
    assert before["dequantised"].startswith("float32")
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / "other name.gguf")
    assert _weights.identity(str(moved)) == before
    content = bytearray(moved.read_bytes())
    content[-1] ^= 1
    moved.write_bytes(content)
    assert _weights.identity(str(moved))["weights"] != before["weights"]


def test_a_second_model_of_the_same_content_is_not_converted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    folder = _weights.folder_now(str(file))
    monkeypatch.setattr(_converted, "_convert", None)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(file.read_bytes())
    assert _weights.folder_now(str(copy)) == folder


def test_a_damaged_folder_is_made_again(tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    folder = _weights.folder_now(str(file))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1])
    assert (_weights.folder_now(str(file)) / "model.safetensors").read_bytes() == whole
    (folder / "tokenizer.json").unlink()
    assert (_weights.folder_now(str(file)) / "tokenizer.json").is_file()


def test_a_conversion_that_is_stopped_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    stop = threading.Event()
    stop.set()
    with pytest.raises(LaunchError, match="given up"):
        _converted.folder(file, "0" * 64, stop)
    assert [one.name for one in cache.iterdir() if not one.name.endswith(".lock")] == []


def test_a_cancelled_start_stops_its_conversion(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    begun, rows, ended = threading.Event(), _converted._rows, threading.Event()
    stops: list[threading.Event] = []

    def slow_rows(*arguments: Any) -> Any:
        begun.set()
        assert stops[0].wait(60)
        return rows(*arguments)

    def convert(file: Path, sha256: str, place: Path, stop: threading.Event) -> None:
        stops.append(stop)
        try:
            convert_all(file, sha256, place, stop)
        finally:
            ended.set()

    convert_all = _converted._convert
    monkeypatch.setattr(_converted, "_rows", slow_rows)
    monkeypatch.setattr(_converted, "_convert", convert)

    async def main() -> None:
        task = asyncio.create_task(_weights.folder(str(file)))  # noqa: TID251 (it is cancelled)
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended.wait(60)
    assert [one.name for one in cache.iterdir() if not one.name.endswith(".lock")] == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path, cache: Path) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    code = (
        "import os, sys; from launch import _converted, _weights\n"
        "_converted._write_json = lambda path, content: os.kill(os.getpid(), 9)\n"
        "_weights.folder_now(sys.argv[1])"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (one for one in cache.iterdir() if one.is_dir())
    assert ".part-" in left.name
    assert not weights.converted()
    folder = _weights.folder_now(str(file))
    assert [one for one in cache.iterdir() if one.is_dir()] == [folder]
    assert [place for place, *_ in weights.converted()] == [folder]


def test_two_processes_convert_once(tmp_path: Path, cache: Path) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    code = (
        "import sys, time; from launch import _converted, _weights\n"
        "convert = _converted._convert\n"
        "def slow(*arguments):\n"
        "    print('converts', flush=True); time.sleep(0.5); convert(*arguments)\n"
        "_converted._convert = slow\n"
        "print(_weights.folder_now(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(file)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = sorted(line for one in both for line in one.communicate(timeout=60)[0].splitlines())
    (folder,) = (one for one in cache.iterdir() if one.is_dir())
    assert lines == [str(folder), str(folder), "converts"]


def test_a_full_disk_is_named_before_anything_is_written(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(LaunchError, match=r"1\.0 kB free; set ORCHESTRATOR_CACHE"):
        _weights.folder_now(str(file))
    assert [one.name for one in cache.iterdir() if not one.name.endswith(".lock")] == []


def test_progress_is_said_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_converted, "_SAY_EVERY_S", 0.0)
    caplog.set_level("INFO", logger="launch")
    _weights.folder_now(str(write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))))
    said = [record.getMessage() for record in caplog.records if record.note]  # type: ignore[attr-defined]
    assert "dequantising m.gguf (" in said[0]
    assert said[-2] == "dequantising m.gguf: 100 %"
    assert said[-1].startswith("dequantised m.gguf in ")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": (
        {"change": changed("general.architecture", "mamba")},
        "its architecture is 'mamba'; can be converted: llama, qwen2, qwen3",
    ),
    "experts": ({"change": changed("llama.expert_count", 8, U32)}, "settings of .*: expert_count"),
    "yarn": ({"change": changed("llama.rope.scaling.type", "yarn")}, "in the way 'yarn'"),
    "a window": (
        {"change": changed("llama.attention.sliding_window", 64, U32)},
        "settings of .*: attention.sliding_window",
    ),
    "sentencepiece": ({"change": changed("tokenizer.ggml.model", "llama")}, "is 'llama', not byte"),
    "unknown cut": ({"pre": "jina-v2-de"}, "in the way 'jina-v2-de'; known: gpt-2, llama-bpe"),
    "one of several": ({"change": changed("split.count", 3, U32)}, "one of several parts"),
    "no norm": ({"leave_out": "output_norm"}, "tensors are missing: output_norm.weight"),
    "a layer too few": (
        {"change": changed("llama.block_count", 3, U32)},
        r"tensors are missing: blk.2.attn_k.weight, blk.2.attn_norm.weight, .* and 6 more",
    ),
    "a layer too many": (
        {"change": changed("llama.block_count", 1, U32)},
        r"tensors of another kind of model: blk.1.attn_k.weight",
    ),
    "other heads": (
        {"change": changed("llama.attention.head_count_kv", 4, U32)},
        r"attn_k.weight has the shape \(32, 64\), not \(64, 64\)",
    ),
    "no heads": ({"change": changed("llama.attention.head_count", 0, U32)}, "head_count is 0"),
    "a bomb of layers": (
        {"change": changed("llama.block_count", 1 << 30, U32)},
        "1,073,741,824 layers",
    ),
    "a fraction of eps": (
        {"change": changed("llama.attention.layer_norm_rms_epsilon", float("nan"))},
        "is nan, not a positive number",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_and_llama_server_named(
    name: str, tmp_path: Path
) -> None:
    options, said = REFUSED[name]
    file = write(tmp_path / "m.gguf", model("llama"), **options)
    with pytest.raises(LaunchError, match=said) as caught:
        _weights.identity(str(file))
    assert "server: llamacpp" in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_tensor_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    raw = np.zeros((96, 64), np.int32)
    file = write(tmp_path / "m.gguf", model("llama"), given={"blk.0.ffn_up.weight": (raw, Q.I32)})
    with pytest.raises(LaunchError, match=r"blk.0.ffn_up.weight has the format I32"):
        _weights.folder_now(str(file))


def test_a_file_that_is_cut_short_is_refused_at_every_length(tmp_path: Path, cache: Path) -> None:
    file = write(tmp_path / "m.gguf", model("qwen2", num_hidden_layers=1))
    content = file.read_bytes()
    for length in [*range(0, len(content), len(content) // 40), len(content) - 1]:
        file.write_bytes(content[:length])
        with pytest.raises(LaunchError):
            _weights.folder_now(str(file))
    assert not weights.converted()


def test_tensors_do_not_share_bytes(tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf", model("llama"))
    places = _gguf.read(file).places
    content = file.read_bytes()
    name = b"blk.1.ffn_up.weight"
    at = content.index(name) + len(name) + 4 + 2 * 8 + 4
    other = places["blk.0.ffn_up.weight"].begin - min(one.begin for one in places.values())
    file.write_bytes(content[:at] + struct.pack("<Q", other) + content[at + 8 :])
    with pytest.raises(LaunchError, match=r"blk.\d.ffn_up.weight is cut short"):
        _weights.folder_now(str(file))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_header_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(header_of(tmp_path))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / "changed.gguf"
    file.write_bytes(content)
    with contextlib.suppress(LaunchError):
        header = _gguf.read(file, arrays=True)
        _gguf_model.described(header, file)
        _gguf_model.converted(header, file)


def header_of(folder: Path) -> bytes:
    file = folder / "whole.gguf"
    if not file.exists():
        write(file, model("qwen2", num_hidden_layers=1))
    return file.read_bytes()


def test_memory_on_a_gpu_is_that_of_the_folder(tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf", model("qwen3", tie_word_embeddings=True), quantise=Q.Q8_0)
    before = [_memory.footprint(file, dtype=dtype) for dtype in ("auto", "bfloat16")]
    folder = _weights.folder_now(str(file))
    assert before == [_memory.footprint(folder, dtype=dtype) for dtype in ("auto", "bfloat16")]


def test_a_file_in_a_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_weights"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "deep" / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    found = package / "deep" / "m.gguf"
    assert _weights.resolve("package:some_weights/deep/m.gguf") == found
    assert llamacpp.resolve("package:some_weights/deep/m.gguf") == found
    with pytest.raises(LaunchError, match=r"has no file 'n\.gguf'"):
        _weights.resolve("package:some_weights/n.gguf")


@pytest.mark.parametrize(
    "weights",
    ["package:a", "package:a/", "package:a.b/m.gguf", "package:a/../m.gguf", "package:a//m.gguf",
     "package:a/m.bin", "package:/m.gguf"],
)  # fmt: skip
def test_other_forms_of_a_package_are_refused(weights: str) -> None:
    with pytest.raises(LaunchError, match=r"write package:MODULE/FILE\.gguf"):
        _weights.resolve(weights)


def test_a_package_that_is_not_installed_is_named_with_the_command() -> None:
    with pytest.raises(LaunchError, match=r"'no_such_weights' .* not installed; install it with"):
        _weights.resolve("package:no_such_weights/m.gguf")
