"""Memory that a model needs, from made configurations and made headers of weights."""

import itertools
import json
import struct
from typing import Any

import numpy as np
import pytest

from launch import _memory, embedded, vllm
from orchestrator.errors import LaunchError
from orchestrator.serving import ServedModel

CONFIG: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "dtype": "bfloat16",
}
TENSORS = {"a": ("BF16", 2000), "b": ("F32", 400), "c": ("I8", 100)}


def write(folder, config=None, tensors=None, name="model.safetensors"):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    header, at = {}, 0
    for key, (dtype, size) in (tensors or TENSORS).items():
        header[key] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * at)
    return folder


def test_weights_are_counted_as_they_are_stored(tmp_path):
    assert _memory.weight_bytes(write(tmp_path)) == 2500


def test_floats_take_the_format_asked_for_and_quantised_tensors_their_own(tmp_path):
    assert _memory.weight_bytes(write(tmp_path), 4) == 4000 + 400 + 100


def test_weights_quantised_while_loading_take_a_byte_each(tmp_path):
    assert _memory.weight_bytes(write(tmp_path), 2, "fp8") == 1000 + 100 + 100


def test_a_second_copy_of_the_weights_is_not_counted(tmp_path):
    write(tmp_path, name="model-00001-of-00001.safetensors")
    write(tmp_path, name="consolidated.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert _memory.weight_bytes(tmp_path) == 2500


def test_the_cache_of_llama_3_8b_is_128_kib_a_token(tmp_path):
    need = _memory.footprint(write(tmp_path), max_model_len=1000)
    assert need.cache == 1000 * 128 * 1024


def test_the_models_own_length_holds_where_none_is_asked(tmp_path):
    assert _memory.footprint(write(tmp_path)).cache == 8192 * 128 * 1024


def test_a_window_bounds_the_cache_of_its_layers(tmp_path):
    kinds = ["sliding_attention"] * 31 + ["full_attention"]
    config = CONFIG | {"sliding_window": 512, "layer_types": kinds}
    need = _memory.footprint(write(tmp_path, config), max_model_len=4096)
    assert need.cache == (31 * 512 + 4096) * 4096


@pytest.mark.parametrize("window", [0, -1, None, 10**6])
def test_a_window_that_bounds_nothing_leaves_the_whole_cache(tmp_path, window):
    config = CONFIG | {"sliding_window": window, "layer_types": ["sliding_attention"] * 32}
    need = _memory.footprint(write(tmp_path, config), max_model_len=4096)
    assert need.cache == 32 * 4096 * 4096


def test_layers_without_attention_keep_nothing(tmp_path):
    config = CONFIG | {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}
    need = _memory.footprint(write(tmp_path, config), max_model_len=100)
    assert need.cache == 8 * 100 * 4096


def test_latent_attention_keeps_one_short_vector_a_token(tmp_path):
    config = CONFIG | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    need = _memory.footprint(write(tmp_path, config), max_model_len=100)
    assert (need.cache, need.cache_splits) == (32 * 100 * 576 * 2, 1)


SIZES = ("weights", "cache", "cache_wanted", "overhead")
AT_ONCE: dict[str, Any] = {"max_model_len": 1000, "sequences": 8, "batched_tokens": 2000}


@pytest.mark.parametrize(
    ("name", "many", "grow"),
    [
        ("max_model_len", True, "cache cache_wanted"),
        ("max_model_len", False, "cache cache_wanted overhead"),
        ("sequences", True, "cache_wanted overhead"),
        ("sequences", False, "cache_wanted overhead"),
        ("batched_tokens", True, "overhead"),
        ("batched_tokens", False, ""),
        ("hidden_size", True, "cache cache_wanted overhead"),
        ("intermediate_size", True, "overhead"),
        ("vocab_size", True, "overhead"),
        ("num_hidden_layers", True, "cache cache_wanted"),
        ("num_key_value_heads", True, "cache cache_wanted"),
    ],
)
def test_sizes_grow_in_proportion_to_what_they_depend_on(tmp_path, name, many, grow):
    """Of fewer tokens than may be computed at a time, all are; of many, no more than may be."""

    def sizes(times):
        asked = AT_ONCE | {"batched_tokens": 2000 if many else 32 * 1000}
        told = {key: n * times if key == name else n for key, n in (CONFIG | asked).items()}
        folder = write(tmp_path, {key: told[key] for key in CONFIG})
        need = _memory.footprint(folder, **{key: told[key] for key in asked})
        return np.array([getattr(need, size) for size in SIZES])

    once, twice, four_times = map(sizes, (1, 2, 4))
    assert {SIZES[i] for i in np.flatnonzero(twice > once)} == {*grow.split()}
    # Of overhead, which has parts of its own, only what grows is in proportion.
    assert list(four_times - twice) == list(2 * (twice - once))
    assert all(twice[i] in {once[i], 2 * once[i]} for i in range(3))


def test_each_sequence_has_logits_of_the_whole_vocabulary(tmp_path):
    def grows(vocabulary):
        folder = write(tmp_path, CONFIG | {"vocab_size": vocabulary})
        one, two = (_memory.footprint(folder, sequences=n, batched_tokens=1) for n in (1, 2))
        return two.overhead - one.overhead

    assert grows(2000) == 2 * grows(1000) > 0


def test_floats_of_twice_the_bytes_take_twice_the_memory(tmp_path):
    folder = write(tmp_path, tensors={"a": ("BF16", 2000), "b": ("F32", 400)})
    half, full = (_memory.footprint(folder, dtype=dtype, **AT_ONCE) for dtype in ("half", "float"))
    for size in SIZES[:3]:
        assert getattr(full, size) == 2 * getattr(half, size)
    assert half.overhead < full.overhead < 2 * half.overhead


def test_splits_divide_the_heads(tmp_path):
    assert _memory.footprint(write(tmp_path)).splits == (1, 2, 4, 8, 16)
    odd = CONFIG | {"num_attention_heads": 14, "num_key_value_heads": 2}
    assert _memory.footprint(write(tmp_path, odd)).splits == (1, 2)


def test_the_text_part_of_a_model_of_several_parts_is_read(tmp_path):
    need = _memory.footprint(write(tmp_path, {"text_config": CONFIG}), max_model_len=10)
    assert need.cache == 10 * 128 * 1024


def test_a_configuration_that_does_not_say_is_refused_by_name(tmp_path):
    with pytest.raises(LaunchError, match="no max_position_embeddings"):
        _memory.footprint(write(tmp_path, {"hidden_size": 8}))


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 20, struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"]
)
def test_a_broken_header_is_an_error_with_the_files_name(tmp_path, content):
    write(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(LaunchError, match=r"model\.safetensors"):
        _memory.weight_bytes(tmp_path)


def test_vllm_is_told_its_gpus_and_its_share(tmp_path):
    placed = vllm.Launch(vllm.Config()).placed(("2", "3"), 0.45).config
    command = vllm.argv(placed, "vllm", ServedModel("m", str(tmp_path)), 1)
    pairs = list(itertools.pairwise(command))
    assert ("--gpu-memory-utilization", "0.45") in pairs
    assert ("--tensor-parallel-size", "2") in pairs
    assert vllm.Launch(placed).environment()["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_the_embedded_server_needs_no_gpu_unless_told_so(tmp_path):
    models = (ServedModel("m", str(write(tmp_path))),)
    assert embedded.Launch(embedded.Config()).footprint(models) is None
    assert embedded.Launch(embedded.Config(device="cuda")).footprint(models) is not None


def test_gpus_named_in_the_recipe_are_left_as_they_are(tmp_path):
    models = (ServedModel("m", str(write(tmp_path))),)
    assert vllm.Launch(vllm.Config(gpus=(1,))).footprint(models) is None
    assert embedded.Launch(embedded.Config(device="cuda:1")).footprint(models) is None


def test_a_tensor_parallel_size_in_the_recipe_is_kept(tmp_path):
    models = (ServedModel("m", str(write(tmp_path))),)
    need = vllm.Launch(vllm.Config(tensor_parallel_size=4)).footprint(models)
    assert need is not None
    assert need.splits == (4,)


def test_the_embedded_server_is_placed_among_the_gpus_it_sees(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert (
        embedded.Launch(embedded.Config(device="cuda")).placed(("3",), 0.5).config.device
        == "cuda:1"
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert (
        embedded.Launch(embedded.Config(device="cuda")).placed(("3",), 0.5).config.device
        == "cuda:3"
    )
