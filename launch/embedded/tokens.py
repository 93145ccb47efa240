"""A tokenizer as the server needs it: chat prompts, continuations in context, bytes of tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jinja2

from launch.embedded.protocol import bad_request
from orchestrator.wire.spelling import Context, Continuation, byte_letters

_SAMPLE = "Aé 日本\n5 [[>>]] 🙂 x"


class Tokens:
    """Wraps a tokenizer of `transformers`.

    Args:
        tokenizer: Fast (Rust) or slow.
        stop_ids: More ids that end an answer, from the model's generation settings.
    """

    def __init__(self, tokenizer: Any, stop_ids: Sequence[int] = ()) -> None:  # noqa: ANN401
        self._tokenizer = tokenizer
        self._fast = getattr(tokenizer, "backend_tokenizer", None)
        if self._fast is not None:
            self._fast.no_truncation()
            self._fast.no_padding()
        self.special = frozenset(tokenizer.all_special_ids)
        eos = tokenizer.eos_token_id
        self.eos = frozenset(stop_ids) | (frozenset() if eos is None else {eos})
        self._pieces: dict[int, bytes] = {}
        self._added = {id_: str(token) for id_, token in tokenizer.added_tokens_decoder.items()}
        self._letters = {letter: byte for byte, letter in byte_letters().items()}
        self._kind = self._find_kind()
        self._leading_space = self._kind == "metaspace" and self._bytes_of("a") != b"a"
        self.end_of_turn = self._find_end_of_turn()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Tokens of a text; `special` adds what the tokenizer puts around a text (such as BOS)."""
        if self._fast is not None:
            ids: list[int] = self._fast.encode(text, add_special_tokens=special).ids
            return ids
        return list(self._tokenizer.encode(text, add_special_tokens=special))

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of tokens."""
        if self._fast is not None:
            return str(self._fast.decode(list(ids), skip_special_tokens=skip_special))
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
            )
        )

    def render(self, messages: Sequence[dict[str, Any]], options: dict[str, Any]) -> str:
        """The chat template's text.

        Args:
            messages: With "role" and "content".
            options: `add_generation_prompt`, `continue_final_message` and the template's own.

        Raises:
            ApiError: 400 where the template refuses the messages, or there is none.
        """
        if not getattr(self._tokenizer, "chat_template", None):
            raise bad_request("the model's tokenizer has no chat template", "messages")
        try:
            return str(
                self._tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
            )
        except (jinja2.TemplateError, ValueError, TypeError, KeyError, IndexError) as error:
            text = f"the chat template refuses the messages: {error}"
            raise bad_request(text, "messages") from error

    def context(self, text: str, ids: Sequence[int]) -> Context:
        """A text that is followed by others, given as text and as tokens.

        Added tokens split a text before anything else looks at it, so only what follows the last
        of them can change how a continuation is cut.
        """
        last = next((i for i in range(len(ids) - 1, -1, -1) if ids[i] in self._added), None)
        if last is not None:
            tail, known = text.rpartition(self._added[ids[last]])[2], list(ids[last + 1 :])
            if self.encode(tail) == known:
                return Context(tail, tuple(known), whole=True)
        return Context(text, tuple(ids), whole=self.encode(text) == list(ids))

    def continuation(self, context: Context, text: str) -> Continuation:
        """Tokens of `text` after a context."""
        alone, joint = self.encode(text), self.encode(context.text + text)
        if self._leading_space:
            # A space is put before every text; a line break in front takes it instead.
            line, both = self.encode("\n"), self.encode("\n" + text)
            alone = both[len(line) :] if both[: len(line)] == line else alone
        return context.followed(tuple(alone), tuple(joint))

    @property
    def spelled(self) -> bool:
        """True if the bytes of single tokens, joined, are those of the text."""
        return self._kind != ""

    def piece(self, token: int) -> bytes:
        """One token's bytes; those of a part of a character are no text."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._token_bytes(token)
        return found

    def visible(self, token: int) -> bytes:
        """The bytes a token adds to a text that leaves special tokens out."""
        return b"" if token in self.special else self.piece(token)

    def _token_bytes(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        name = self._tokenizer.convert_ids_to_tokens(token)
        if name is None:
            return b""
        if self._kind == "bytelevel":
            return bytes(self._letters[letter] for letter in name)
        if self._kind == "metaspace":
            if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
                return bytes([int(name[3:5], 16)])
            return str(name).replace("▁", " ").encode()
        return self.decode([token], skip_special=False).encode()

    def _find_kind(self) -> str:
        """Return the way in which token names spell bytes; empty if unknown or a sample fails."""
        if self._fast is None:
            return ""
        decoder = json.dumps(json.loads(self._fast.to_str()).get("decoder"), ensure_ascii=False)
        for kind, mark in (("bytelevel", '"ByteLevel"'), ("metaspace", "▁")):
            self._kind = kind
            try:
                if mark in decoder and self._bytes_of(_SAMPLE).lstrip() == _SAMPLE.encode():
                    return kind
            except (KeyError, ValueError):
                continue
        return ""

    def _bytes_of(self, text: str) -> bytes:
        return b"".join(self._token_bytes(token) for token in self.encode(text))

    def _find_end_of_turn(self) -> int | None:
        """The token by which the template ends the assistant's turn, else the usual stop token."""
        usual: int | None = self._tokenizer.eos_token_id
        if not getattr(self._tokenizer, "chat_template", None):
            return usual
        turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False)
        except (jinja2.TemplateError, ValueError, TypeError, KeyError, IndexError):
            return usual
        tail = str(text).rpartition("y")[2]
        return next((token for token in self.encode(tail) if token in self.eos), usual)
