"""Small GGUF files of models of `transformers`, written by ggml's own package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import torch
import transformers
from numpy.typing import NDArray

SMALL: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}
TEMPLATE: Final = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_ARCHITECTURES: Final = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
}


def letters() -> list[str]:
    """The letters of bytes 0 to 255, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return [chr(byte if byte in plain else 256 + rest.index(byte)) for byte in range(256)]


U32: Final = gguf.GGUFValueType.UINT32
MERGES: Final = (
    "h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "1 2", "12 3", "' s",
    "Ġ Ġ", "Ċ Ċ",
)  # fmt: skip
TOKENS: Final = [*SPECIAL, *letters(), *(merge.replace(" ", "") for merge in MERGES)]


def model(kind: str, seed: int = 0, **fields: Any) -> Any:
    """A model with random weights, biases and norms among them, in float32."""
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    config = getattr(transformers, f"{names[kind]}Config")(
        **{**SMALL, "vocab_size": len(TOKENS), "bos_token_id": 1, "eos_token_id": 2, **fields}
    )
    made = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in made.named_parameters():
            noise = torch.randn(weights.shape, generator=generator) * 0.1
            weights.copy_(noise + (1.0 if "norm" in name else 0.0))
    return made


def permuted(weights: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """As `permute` of llama.cpp's convert_hf_to_gguf.py for Llama."""
    shape = (n_heads, 2, weights.shape[0] // n_heads // 2, *weights.shape[1:])
    return weights.reshape(shape).swapaxes(1, 2).reshape(weights.shape)


def write(
    file: Path,
    made: Any,
    *,
    quantise: gguf.GGMLQuantizationType | None = None,
    change: Callable[[gguf.GGUFWriter], None] = lambda _: None,
    pre: str = "smollm",
    architecture: str = "",
    leave_out: str = "",
    tokens: list[str] | None = None,
    template: str = TEMPLATE,
    given: Mapping[str, tuple[NDArray[Any], gguf.GGMLQuantizationType]] | None = None,
) -> Path:
    """Write a model.

    Args:
        file: To write.
        made: The model.
        quantise: Format of matrices.
        change: Adds to the header, or changes what is in it.
        pre: The way in which a text is cut before merges.
        architecture: Another one than the model's.
        leave_out: Tensors with this in their names.
        tokens: Of the tokenizer.
        template: Of chats.
        given: Content of tensors in place of the model's, or beside them.
    """
    given = given or {}
    config = made.config
    kind = config.model_type
    writer = gguf.GGUFWriter(file, architecture or kind)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    listed = TOKENS if tokens is None else tokens
    writer.add_token_list(listed)
    writer.add_token_types([3 if text in SPECIAL else 1 for text in listed])
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if template:
        writer.add_chat_template(template)
    change(writer)
    names = gguf.get_tensor_name_map(_ARCHITECTURES[kind], config.num_hidden_layers)
    for name, tensor in made.state_dict().items():
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if own is None or (config.tie_word_embeddings and name == "lm_head.weight"):
            continue
        if own in given or (leave_out and leave_out in own):
            continue
        array = tensor.numpy()
        if kind == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            array = permuted(array, heads)
        if quantise is not None and array.ndim == 2:
            writer.add_tensor(own, gguf.quantize(array, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(own, np.ascontiguousarray(array))
    for own, (raw, form) in given.items():
        writer.add_tensor(own, raw, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def changed(
    key: str, value: Any, kind: gguf.GGUFValueType | None = None
) -> Callable[[gguf.GGUFWriter], None]:
    """Set a key of the header, of the type of the value unless one is given."""

    def change(writer: gguf.GGUFWriter) -> None:
        own = gguf.GGUFValueType.get_type(value) if kind is None else kind
        for part in writer.kv_data:
            part.pop(key, None)
        writer.add_key_value(key, value, own)

    return change
