"""Tokens as text: by the model's own tokenizer where it is on this machine, or by their places."""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from orchestrator import contracts, plugins
from orchestrator.errors import OrchestratorError
from orchestrator.recipe.schema import Recipe
from orchestrator.records import IntArray

# Prefixes are spelled one by one, which costs the square of this.
_MOST_PREFIXES: Final = 1500
_UNFINISHED: Final = "\N{REPLACEMENT CHARACTER}"


class Speller:
    """Spells the tokens of a run's models.

    Args:
        recipe: Says where their weights are.
        identities: As the run wrote them down: another tokenizer of the same place is not used.
        allow_code: Import kinds from outside this project.
    """

    def __init__(
        self,
        recipe: Recipe,
        identities: Mapping[str, Mapping[str, str]],
        *,
        allow_code: bool = False,
    ) -> None:
        self._recipe = recipe
        self._identities = identities
        self._allow_code = allow_code
        self._known: dict[str, Any] = {}

    def one(self, model: str, token_id: int) -> str | None:
        """A token as it stands alone; None where it can't be spelled."""
        tokenizer = self._tokenizer(model)
        if tokenizer is None:
            return None
        found: str = tokenizer.decode([token_id], skip_special_tokens=False)
        return found or str(tokenizer.id_to_token(token_id) or "")

    def pieces(
        self, model: str, ids: Sequence[int], text: str, offsets: IntArray | None
    ) -> list[str] | None:
        """Return the piece of a text that each token adds; None if it is unknown.

        Args:
            model: Whose tokens they are.
            ids: The tokens.
            text: What they spell together.
            offsets: The place in the text at which each token begins, where known.
        """
        if not ids:
            return []
        if offsets is not None and len(offsets) == len(ids):
            ends = [*offsets.tolist()[1:], len(text)]
            return [text[begin:end] for begin, end in zip(offsets.tolist(), ends, strict=True)]
        tokenizer = self._tokenizer(model)
        if tokenizer is None:
            return None
        if len(ids) > _MOST_PREFIXES:
            return [self.one(model, one) or "" for one in ids]
        found, before = [], ""
        for n in range(1, len(ids) + 1):
            now: str = tokenizer.decode(ids[:n], skip_special_tokens=False)
            # Bytes of a letter that is not complete yet belong to the token that completes it.
            now = now.rstrip(_UNFINISHED) if n < len(ids) else now
            found.append(now[len(before) :] if now.startswith(before) else "")
            before = now if now.startswith(before) else before
        return found

    def _tokenizer(self, model: str) -> Any:  # noqa: ANN401 (of the package `tokenizers`)
        if model not in self._known:
            self._known[model] = self._found(model)
        return self._known[model]

    def _found(self, model: str) -> object:
        spec = self._recipe.models.get(model)
        if spec is None or spec.server is None or importlib.util.find_spec("tokenizers") is None:
            return None
        try:
            kind = contracts.load(plugins.LAUNCH, spec.server.kind, allow_code=self._allow_code)
            found = kind(spec.server.config).tokenizer(spec.weights or "")
        except OrchestratorError:
            # The weights are not on this machine.
            return None
        if found is None:
            return None
        path, digest = found
        is_same = digest == self._identities.get(model, {}).get("tokenizer")
        return _load(path) if is_same and path.is_file() else None


@cache
def _load(path: Path) -> object:
    return importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
