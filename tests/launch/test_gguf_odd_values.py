"""Whatever type of value a key of a GGUF file has, the file is read or refused by what it lacks."""

import gguf
import pytest

from launch import _converted, _gguf
from orchestrator.errors import LaunchError
from tests.launch.gguf_files import model, write

TYPES = gguf.GGUFValueType
ODD = (
    gguf.GGUFValue("text", TYPES.STRING),
    gguf.GGUFValue("", TYPES.STRING),
    gguf.GGUFValue(0, TYPES.UINT32),
    gguf.GGUFValue(2**32 - 1, TYPES.UINT32),
    gguf.GGUFValue(-1, TYPES.INT32),
    gguf.GGUFValue(0.5, TYPES.FLOAT32),
    gguf.GGUFValue(float("nan"), TYPES.FLOAT64),
    gguf.GGUFValue(value=True, type=TYPES.BOOL),
    gguf.GGUFValue(["a", "b"], TYPES.ARRAY, TYPES.STRING),
    gguf.GGUFValue([0, 7], TYPES.ARRAY, TYPES.INT32),
    gguf.GGUFValue([0.5], TYPES.ARRAY, TYPES.FLOAT32),
    gguf.GGUFValue([[1], [2]], TYPES.ARRAY, TYPES.ARRAY),
)
KEYS = (
    "general.architecture", "qwen2.context_length", "qwen2.embedding_length", "qwen2.block_count",
    "qwen2.feed_forward_length", "qwen2.attention.head_count", "qwen2.attention.head_count_kv",
    "qwen2.attention.key_length", "qwen2.attention.value_length", "qwen2.rope.freq_base",
    "qwen2.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model", "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.chat_template",
    "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
)  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return model("qwen2", num_hidden_layers=1)


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_any_type_is_read_or_refused(key, made, tmp_path, monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    file = write(tmp_path / "m.gguf", made)
    assert _converted.folder(file, "f" * 64).is_dir()
    refused = []
    for number, odd in enumerate(ODD):

        def change(writer, odd=odd):
            writer.kv_data[0][key] = odd

        file = write(tmp_path / "m.gguf", made, change=change)
        try:
            _converted.folder(file, f"{number:064}")
            _gguf.footprint([file], context=100, cache_type="f16")
        except LaunchError as error:
            refused.append(str(error))
    assert refused
    assert all(str(file) in said for said in refused)
