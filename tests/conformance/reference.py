"""A model's own forward pass in float32, without any server."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.records import Messages

FloatArray = npt.NDArray[np.float64]


class Reference:
    """A bundled model by `transformers`, and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        import torch  # noqa: PLC0415 (heavy, and not everywhere)
        import transformers  # noqa: PLC0415

        self._torch = torch
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32
        ).eval()

    def prompt(self, messages: Messages) -> list[int]:
        """The ids of a chat prompt that opens the assistant's turn."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return self.encode(text)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, nothing added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def logprobs(self, prompt: Sequence[int], ids: Sequence[int]) -> FloatArray:
        """ln p over the whole vocabulary at the place of each of `ids`, shape (T, V)."""
        torch = self._torch
        with torch.no_grad():
            logits = self._model(torch.tensor([[*prompt, *ids]])).logits[0].to(torch.float64)
        rows = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 : len(prompt) - 1 + len(ids)]
        found: FloatArray = rows.numpy()
        return found

    def scores(self, prompt: Sequence[int], ids: Sequence[int]) -> FloatArray:
        """ln p of each of `ids` after a prompt, shape (T,)."""
        return self.logprobs(prompt, ids)[np.arange(len(ids)), list(ids)]


@lru_cache(maxsize=2)
def reference(folder: Path) -> Reference:
    """Loaded once."""
    return Reference(folder)
