"""Tiny random Llamas with byte-level tokenizers, whose greedy choices have big gaps."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ("<pad>", "<s>", "<|im_start|>", "<|im_end|>")
END = 3
TURNS = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = (
    "The judge reads two answers and says which is better: [[>>]] [[>]] [[=]] [[<]] [[<<]].",
    "Question: what is 3 + 5? Answer: 8. user assistant system hello world quick brown fox",
    "Ein schöner Tag, 日本語 and emoji 🙂 with caf\u00e9.",
)


def save_tokenizer(folder: Path, *, with_bos: bool) -> None:
    """Write a byte-level tokenizer with a chat template."""
    backend = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(
        Regex(r"\[\[|\]\]| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"), "isolated"
    )
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        show_progress=False,
    )
    backend.train_from_iterator(TEXT * 20, trainer)
    names = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    tokenizer.chat_template = ("{{ bos_token }}" if with_bos else "") + TURNS
    tokenizer.save_pretrained(folder)


def save_model(folder: Path, *, seed: int, head_size: int = 32, context: int = 512) -> None:
    """Write a random model; its logits are spread so that greedy choices are clear."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_size,
        max_position_embeddings=context,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.15)
        model.lm_head.weight.normal_(0, 0.6)
        # Random models would end their answers at random places.
        model.lm_head.weight[END] = 0
    model.generation_config.temperature = 0.3
    model.generation_config.do_sample = True
    model.save_pretrained(folder)


def build(folder: Path, *, seed: int, with_bos: bool, head_size: int = 32) -> Path:
    """Write a whole model folder."""
    folder.mkdir(parents=True)
    save_model(folder, seed=seed, head_size=head_size)
    save_tokenizer(folder, with_bos=with_bos)
    return folder
