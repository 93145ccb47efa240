"""Rows of files of answers, in the forms that other programs write, as one kind of record.

* MT-Bench (FastChat): `question_id`, `choices: [{index, turns}]`, `model_id`;
* AlpacaEval: `instruction`, `output`, `generator`;
* lm-eval: `doc_id`, `resps`, `doc`, `arguments` (what was sampled, not what a filter left of it);
* our own frame `answers`: `item`, `turn`, `model`, `text`;
* plain: a key (`key`, `id`, `question_id`, `item`) or the prompt, and a text (`text`, `answer`,
  `output`, `response`, `completion`, `prediction`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from orchestrator.dataset.fields import DEFAULTS, key_text

_MANY: Final = 10**9
_KEYS: Final = ("key", "item", "question_id", "doc_id", "id")
_PROMPTS: Final = DEFAULTS["prompt"]
_TEXTS: Final = ("text", "answer", "output", "response", "completion", "prediction")
_FORMS: Final = ("choices", "resps", "filtered_resps")
_GENERATORS: Final = ("generator", "model_id", "model")


class FormError(Exception):
    """A row that holds no answer; says what is wrong, not where."""


class AnswerRow(NamedTuple):
    """Answers of one model to one item.

    Attributes:
        key: Of the item; empty where the row has none.
        prompt: Of the item; empty where the row has none.
        generator: Who answered; empty where the row does not say.
        turn: Which turn this answers; 0 where `samples` hold all turns.
        samples: Independent answers, each the text of every turn; None for one that is null: who
            wrote the file had no answer.
    """

    key: str
    prompt: str
    generator: str
    turn: int
    samples: tuple[tuple[str | None, ...], ...]


class Names(NamedTuple):
    """Columns as the user names them; empty where they are found by the usual names."""

    key: str = ""
    prompt: str = ""
    text: str = ""


def answer_row(row: Mapping[str, object], names: Names) -> AnswerRow:
    """The answers in a row.

    Raises:
        FormError: If it holds none, or can't be matched with an item.
    """
    key = ""
    if names.key:
        key = key_text(row.get(names.key))
    elif not names.prompt:
        # A prompt that the user named is all that counts.
        key = next((text for name in _KEYS if (text := key_text(row.get(name)))), "")
    if names.prompt:
        prompt = _plain(row.get(names.prompt))
    elif "resps" in row or "filtered_resps" in row:
        prompt = _evaluation_harness_prompt(row)
    else:
        prompt = _first(row, _PROMPTS)
    if not key and not prompt:
        raise FormError(
            f"neither a key ({', '.join(_KEYS)}) nor a prompt ({', '.join(_PROMPTS)}) to find "
            "its item by; set 'key' or 'prompt'"
        )
    return AnswerRow(
        key, prompt, _first(row, _GENERATORS), _turn(row.get("turn")), _samples(row, names)
    )


def _turn(value: object) -> int:
    if value is None:
        return 0
    text = key_text(value)
    if text.isascii() and text.isdecimal() and 0 < int(text[:12]) < _MANY:
        return int(text)
    raise FormError(f"'turn' must be a number from 1, not {value!r:.40}")


def check_columns(columns: Sequence[str], names: Names) -> None:
    """See that one column alone can hold the answers: another may hold the gold answer.

    Raises:
        FormError: If several could, and the user named none.
    """
    found = [name for name in _TEXTS if name in columns]
    if len(found) > 1 and not names.text and not {*_FORMS}.intersection(columns):
        either = " and ".join(map(repr, found))
        raise FormError(f"{either} could each be the answer; say which by 'text: {found[-1]}'")


def has_generator(columns: Sequence[str]) -> bool:
    """Return True if a file with these columns names the model that answered."""
    return any(name in columns for name in _GENERATORS)


def _evaluation_harness_prompt(row: Mapping[str, object]) -> str:
    """The question in `doc`, else what was sent: `arguments` is a list or a mapping by request."""
    doc = row.get("doc")
    if isinstance(doc, Mapping) and (found := _first(doc, _PROMPTS)):
        return found
    sent = row.get("arguments")
    if isinstance(sent, Mapping):
        first = next(iter(sent.values()), None)
        return _plain(first.get("arg_0")) if isinstance(first, Mapping) else ""
    if isinstance(sent, Sequence) and sent and isinstance(sent[0], Sequence) and sent[0]:
        return _plain(sent[0][0])
    return ""


def _samples(row: Mapping[str, object], names: Names) -> tuple[tuple[str | None, ...], ...]:
    if names.text:
        if names.text not in row:
            raise FormError(f"{names.text!r} is missing")
        return (_turns(row[names.text], names.text),)
    if "choices" in row:
        # FastChat: independent answers by `index`, each a list of turns.
        choices = row["choices"]
        if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
            raise FormError("'choices' must be a list of {index, turns}")
        if not all(isinstance(choice, Mapping) for choice in choices):
            raise FormError("'choices' must be a list of {index, turns}")
        try:
            ordered = sorted(choices, key=lambda choice: choice.get("index") or 0)
        except TypeError as error:
            raise FormError("'choices' have indexes that are not numbers") from error
        if not all("turns" in choice for choice in ordered):
            raise FormError("'choices[].turns' is missing")
        return tuple(_turns(choice["turns"], "choices[].turns") for choice in ordered)
    for name in _FORMS[1:]:
        if name in row:
            # lm-eval: a list by request of lists of repeats, or of texts after a filter.
            return _responses(row[name], name)
    found = [name for name in _TEXTS if name in row]
    if not found:
        raise FormError(f"no answer: none of {', '.join(_TEXTS)}, choices, resps; set 'text'")
    return (_turns(row[found[0]], found[0]),)


def _responses(value: object, name: str) -> tuple[tuple[str | None, ...], ...]:
    """lm-eval: a list by request of lists of repeats, or of texts after a filter."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        inner = value[0]
        texts = [inner] if isinstance(inner, str) else inner
        if isinstance(texts, Sequence) and texts and all(map(_is_answer, texts)):
            return tuple((text,) for text in texts)
    raise FormError(f"{name!r} holds no text: only tasks that generate have answers")


def _turns(value: object, name: str) -> tuple[str | None, ...]:
    """The text of every turn."""
    if value is None or isinstance(value, str):
        return (value,)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        texts = tuple(text for text in value if text is None or isinstance(text, str))
        if texts and len(texts) == len(value):
            return texts
    raise FormError(f"{name!r} must be a text or a list of texts")


def _is_answer(value: object) -> bool:
    return value is None or isinstance(value, str)


def _first(row: Mapping[str, object], names: Sequence[str]) -> str:
    return next((text for name in names if (text := _plain(row.get(name)))), "")


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
