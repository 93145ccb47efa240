"""Tokens as text: as the run wrote them down, by their places, or by the model's own tokenizer."""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from orchestrator import contracts, plugins
from orchestrator.ask import GenerateAsk, ScoreAsk
from orchestrator.errors import OrchestratorError
from orchestrator.recipe.schema import Recipe
from orchestrator.records import Generation, IntArray, Scored
from orchestrator.runner.models.identity import identity_key, server_label
from orchestrator.runner.results.pieces import pieces, spelled
from orchestrator.runner.results.unobserved import unobserved
from orchestrator.store import Store

# Prefixes are spelled one by one, which costs the square of this.
_MOST_PREFIXES: Final = 1500
_UNFINISHED: Final = "\N{REPLACEMENT CHARACTER}"


class Speller:
    """Spells the tokens of a run's models.

    Args:
        recipe: Says where their weights are.
        identities: As the run wrote them down: another tokenizer of the same place is not used.
        texts: The texts of tokens that the run wrote down, by model and number.
        allow_code: Import kinds from outside this project.
    """

    def __init__(
        self,
        recipe: Recipe,
        identities: Mapping[str, Mapping[str, str]],
        texts: Mapping[str, Mapping[int, bytes]] | None = None,
        *,
        allow_code: bool = False,
    ) -> None:
        self._recipe = recipe
        self._identities = identities
        self._texts = texts or {}
        self._allow_code = allow_code
        self._known: dict[str, Any] = {}

    def one(self, model: str, number: int) -> str | None:
        """A token as it stands alone; None where it can't be spelled.

        Args:
            model: Whose token it is.
            number: Its id, or the number that the run gave to its text.
        """
        written = self._texts.get(model, {}).get(number)
        if written is not None:
            return spelled(written)
        tokenizer = self._tokenizer(model) if number >= 0 else None
        if tokenizer is None:
            return None
        found: str = tokenizer.decode([number], skip_special_tokens=False)
        return found or str(tokenizer.id_to_token(number) or "")

    def pieces(
        self, model: str, numbers: Sequence[int], text: str, offsets: IntArray | None = None
    ) -> list[str] | None:
        """Return the piece of a text that each token adds; None if it is unknown.

        Args:
            model: Whose tokens they are.
            numbers: The tokens, as for `one`.
            text: What they spell together.
            offsets: The place in the text at which each token begins, where known.
        """
        if offsets is not None:
            starts = offsets.tolist()
            ends = [*starts[1:], len(text)]
            return [text[begin:end] for begin, end in zip(starts, ends, strict=False)]
        if not numbers:
            return []
        known = self._texts.get(model, {})
        written = [known.get(number) for number in numbers]
        tokenizer = None if None not in written else self._tokenizer(model)
        if tokenizer is None:
            return None if all(one is None for one in written) else pieces(written, text)
        if len(numbers) > _MOST_PREFIXES:
            return [self.one(model, one) or "" for one in numbers]
        return _by_prefixes(tokenizer, numbers)

    def missing(
        self, ask: GenerateAsk | ScoreAsk, made: Generation | Scored, *, is_spelled: bool
    ) -> list[str]:
        """Return what was not observed of a text's tokens; see `results.unobserved`."""
        return unobserved(self._recipe.models.get(ask.model), ask, made, is_spelled=is_spelled)

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


def written_texts(
    store_path: Path, identities: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[int, bytes]]:
    """The texts of tokens that a run wrote down, by model and number.

    Raises:
        OrchestratorError: If the store can't be read.
    """
    with Store.open(store_path, read_only=True) as store:
        return {
            model: store.tokens(server_label(model, identity_key(identity)))
            for model, identity in identities.items()
        }


def _by_prefixes(tokenizer: Any, ids: Sequence[int]) -> list[str]:  # noqa: ANN401 (as above)
    found, before = [], ""
    for n in range(1, len(ids) + 1):
        now: str = tokenizer.decode(ids[:n], skip_special_tokens=False)
        # Bytes of a letter that is not complete yet belong to the token that completes it.
        now = now.rstrip(_UNFINISHED) if n < len(ids) else now
        found.append(now[len(before) :] if now.startswith(before) else "")
        before = now if now.startswith(before) else before
    return found


@cache
def _load(path: Path) -> object:
    return importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
