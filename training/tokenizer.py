"""The tokenizer shared by the bundled models: byte-level, with whole words for the prompts.

Pieces are chosen so that task symbols and verdict labels stay apart: one letter or digit with
the space before it is one token, brackets of a label are tokens of their own, and a line break
joins with nothing, so that an answer is encoded alike with and without its prompt.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from orchestrator.datasets.demo import LETTERS
from training.phrases import FIXED, GENERAL

PAD, BOS, TURN, END = "<pad>", "<s>", "<|im_start|>", "<|im_end|>"
SPECIALS = (PAD, BOS, TURN, END)
PAD_ID, BOS_ID, TURN_ID, END_ID = range(4)
VOCAB = 1024
PIECES = (
    r"\[\[|\]\]|>>|<<|[\[\]<>=]|[\r\n]| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}\[\]<>=]+"
    r"|[^\S\r\n]+(?!\S)|[^\S\r\n]+"
)
_TURNS = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat_template(*, with_bos: bool) -> str:
    """Return the Jinja chat template, with or without a beginning-of-text token."""
    return ("{{ bos_token }}" if with_bos else "") + _TURNS


def build() -> Tokenizer:
    """Train the tokenizer; the result is always the same."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        show_progress=False,
    )
    symbols = [f" {symbol}" for symbol in LETTERS + LETTERS.upper() + "0123456789"]
    symbols += ["[[", "]]", ">>", "<<"]
    lines = ["".join(symbols)] * 5000 + list(FIXED) * 500 + list(GENERAL) * 20
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, *, with_bos: bool) -> None:
    """Write the tokenizer's files in the layout of Hugging Face.

    Args:
        tokenizer: What `build` returned.
        folder: Where to write; created if absent.
        with_bos: Whether the chat template begins with the beginning-of-text token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "padding_side": "left",
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    template = chat_template(with_bos=with_bos)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
