"""Headers of GGUF files, written by the `gguf` package and read by ours."""

import contextlib
import re

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch import _gguf, llamacpp
from orchestrator.errors import LaunchError
from orchestrator.serving import ServedModel

HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, WORDS = 64, 3, 4, 2, 96, 40
SHAPES = {"attn_q": (HIDDEN, HIDDEN), "ffn_up": (INNER, HIDDEN)}


def write(
    file, *, tied=False, kv_heads: int | list[int] = KV_HEADS, quantised=False, n_layers=LAYERS
):
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(n_layers)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"w{n}" for n in range(WORDS)])
    writer.add_token_scores([0.0] * WORDS)
    writer.add_tensor("token_embd.weight", np.zeros((WORDS, HIDDEN), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(HIDDEN, np.float32))
    if not tied:
        writer.add_tensor("output.weight", np.zeros((WORDS, HIDDEN), np.float32))
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            weights = np.zeros(shape, np.float32)
            if quantised:
                weights = gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
                kind = gguf.GGMLQuantizationType.Q8_0
                writer.add_tensor(f"blk.{layer}.{name}.weight", weights, raw_dtype=kind)
            else:
                writer.add_tensor(f"blk.{layer}.{name}.weight", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def need(file, **settings):
    return _gguf.footprint([file], **{"context": 100, "cache_type": "f16", **settings})


BLOCK = 4 * HIDDEN * (HIDDEN + INNER)
TABLE = 4 * WORDS * HIDDEN
NORM = 4 * HIDDEN


def test_values_lengths_and_tensors_are_those_that_were_written(tmp_path):
    header = _gguf.read(write(tmp_path / "m.gguf"))
    assert header.values["general.architecture"] == "llama"
    assert header.values["llama.block_count"] == LAYERS
    assert header.values["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    assert header.lengths["tokenizer.ggml.tokens"] == WORDS
    assert len(header.places) == 3 + LAYERS * len(SHAPES)
    assert header.places["blk.1.ffn_up.weight"].n_bytes == 4 * HIDDEN * INNER


def test_tensors_are_as_large_as_the_gguf_package_finds_them(tmp_path):
    file = write(tmp_path / "m.gguf", quantised=True)
    known = {one.name: int(one.n_bytes) for one in gguf.GGUFReader(file).tensors}
    assert {name: one.n_bytes for name, one in _gguf.read(file).places.items()} == known


def test_the_input_table_is_not_on_the_gpu(tmp_path):
    assert need(write(tmp_path / "m.gguf")).weights == LAYERS * BLOCK + TABLE + NORM


def test_a_table_that_is_the_output_too_is(tmp_path):
    assert need(write(tmp_path / "m.gguf", tied=True)).weights == LAYERS * BLOCK + TABLE + NORM


def test_the_cache_is_that_of_all_slots_in_its_format(tmp_path):
    file = write(tmp_path / "m.gguf")
    a_token = LAYERS * KV_HEADS * 2 * (HIDDEN // HEADS)
    assert need(file).cache == need(file).cache_wanted == 100 * a_token * 2
    assert need(file, cache_type="f32").cache == 100 * a_token * 4
    assert need(file, cache_type="q8_0").cache == 100 * a_token * 34 / 32


def test_only_the_layers_on_the_gpu_count(tmp_path):
    found = need(write(tmp_path / "m.gguf"), n_gpu_layers=1)
    assert found.weights == BLOCK + TABLE + NORM
    assert found.cache == 100 * KV_HEADS * 2 * (HIDDEN // HEADS) * 2
    assert found.splits == (1,)


def test_layers_with_heads_of_their_own_are_added_up(tmp_path):
    found = need(write(tmp_path / "m.gguf", kv_heads=[4, 0, 2]))
    assert found.cache == 100 * 6 * 2 * (HIDDEN // HEADS) * 2


def test_scores_are_held_where_attention_is_not_one_kernel(tmp_path):
    file = write(tmp_path / "m.gguf")
    more = need(file, flash_attention=False).overhead - need(file).overhead
    assert more == 512 * 4 * 100 * HEADS


def test_the_parts_of_a_cut_model_are_added_up(tmp_path):
    one, other = write(tmp_path / "a.gguf"), tmp_path / "b.gguf"
    writer = gguf.GGUFWriter(other, "llama")
    writer.add_tensor("blk.2.more.weight", np.zeros(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    both = _gguf.footprint([one, other], context=100, cache_type="f16")
    assert both.weights == need(one).weights + 1024


def test_what_a_file_does_not_say_is_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "strange")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(LaunchError, match=r"says no strange\.block_count.*n_gpu_layers: 0"):
        need(tmp_path / "m.gguf")


@pytest.mark.parametrize("kept", [3, 20, 200, 700])
def test_a_file_that_is_cut_short_is_an_error(tmp_path, kept):
    file = write(tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(LaunchError, match="cut short"):
        _gguf.read(file)


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(0, 400))
def test_nonsense_in_the_header_is_read_or_refused(tmp_path_factory, nonsense, at):
    file = tmp_path_factory.getbasetemp() / "nonsense.gguf"
    whole = bytearray(write(file).read_bytes())
    whole[at : at + len(nonsense)] = nonsense
    file.write_bytes(whole)
    with contextlib.suppress(LaunchError):
        assert need(file).weights <= len(whole)


def test_an_absurd_number_of_layers_is_refused(tmp_path):
    with pytest.raises(LaunchError, match="1000000 layers"):
        need(write(tmp_path / "m.gguf", n_layers=1_000_000))


@pytest.mark.slow
@pytest.mark.llamacpp
async def test_weights_and_cache_are_those_that_a_real_server_reports(tmp_path):
    models = (ServedModel("judge", "bundled:judge"),)
    config = llamacpp.Config(max_model_len=512, slots=2, extra_args=("-lv", "5"))
    need = llamacpp.Launch(config).footprint(models)
    server = await llamacpp.Launch(config).start(models, tmp_path / "log")
    await server.stop()
    log = server.log_path.read_text()
    mib = {
        what: float(re.findall(rf"{what} buffer size = +([\d.]+) MiB", log)[-1])
        for what in ("KV", "model", "compute")
    }
    assert need is not None
    assert need.cache / 2**20 == pytest.approx(mib["KV"], abs=0.01)
    # Its output is its input table, so all of it is on either side.
    assert need.weights / 2**20 == pytest.approx(mib["model"], abs=0.01)
    assert need.overhead / 2**20 > mib["compute"]
