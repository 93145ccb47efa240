"""Answers that exist already, in the forms that programs write: found by key, else by prompt.

What stays in memory are 12 bytes an answer; texts are read from the file when they are asked for.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ask import AnyAsk, GenerateAsk, digest
from orchestrator.dataset.fields import DEFAULTS, key_text
from orchestrator.dataset.files import open_rows
from orchestrator.dataset.rows import Faults, Rows
from orchestrator.disk.files import sha256_of
from orchestrator.errors import DatasetError
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.records import GIVEN, Failure, Generation, Item

# Rows of files of answers, in the forms that other programs write, as one kind of record.
#
# * MT-Bench (FastChat): `question_id`, `choices: [{index, turns}]`, `model_id`;
# * AlpacaEval: `instruction`, `output`, `generator`;
# * lm-eval: `doc_id`, `resps`, `doc`, `arguments` (what was sampled, not what a filter left of it);
# * our own frame `answers`: `item`, `turn`, `model`, `text`;
# * plain: a key (`key`, `id`, `question_id`, `item`) or the prompt, and a text (`text`, `answer`,
#   `output`, `response`, `completion`, `prediction`).


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


Find = Callable[[Item, AnyAsk], Generation | Failure]
_SHOWN: Final = 5
# What FastChat and its like write where a model's server failed, what clients raise, and what
# pandas makes of nothing. An answer may begin with "Error:", so that alone tells nothing.
_ERROR: Final = re.compile(
    r"\s*(\$(?:[A-Z_]*ERROR[A-Z_]*|MODERATION)\$"
    r"|\**NETWORK ERROR DUE TO HIGH TRAFFIC"
    r"|[\[<]?(?:API|SERVER|REQUEST|NETWORK|MODEL|GENERATION|INFERENCE)_ERROR[\]>]?(?=\s*\Z)"
    r"|(?:nan|<NA>)(?=\s*\Z)"
    r"|(?:[a-z_]+\.)*(?:RateLimit|API(?:Connection|Timeout|Status|Response)?|BadRequest|"
    r"Authentication|PermissionDenied|InternalServer|ServiceUnavailable|ContentPolicyViolation|"
    r"ContextWindowExceeded|ReadTimeout|ConnectTimeout)Error\b"
    r"|(?i:[\[<*]*error\b[^\n]{0,60}?(?:code: ?[45]\d\d\b|http|\b[45]\d\d\b|rate.?limit|"
    r"time[ds]?[ -]?out|quota|overloaded|(?:api|model|server|service|connection|request) "
    r"(?:error|failed|unavailable|reset|refused)|content (?:filter|policy)|moderation)))"
)
# Stands for the row of a prompt that rows of different keys answer differently.
_SEVERAL: Final = -1


def given_answers(given: GivenAnswers) -> tuple[Find, dict[str, str]]:
    """Return a function that finds the answers of a model, and the identity of that model.

    Raises:
        DatasetError: If the file is missing or malformed, with every row that is not right.
    """
    if given.field is not None:
        column = given.field
        identity = {"answers": f"field {column}"}
        return (lambda item, ask: _in_field(item, ask, column)), identity
    answers = AnswerFile(given)
    return answers.find, answers.identity


class AnswerFile:
    """The answers of one model in a file.

    Raises:
        DatasetError: If the file is missing or malformed, with every row that is not right.
    """

    def __init__(self, given: GivenAnswers) -> None:
        path = Path(given.path or "")
        self._rows = open_rows(path, path.name)
        self._names = Names(given.key or "", given.prompt or "", given.text or "")
        self._file = path.name
        self.identity = {"answers": sha256_of(path), "generator": given.generator or ""} | {
            f"answers.{name}": value for name, value in self._names._asdict().items() if value
        }
        try:
            check_columns(self._rows.columns, self._names)
        except FormError as error:
            raise DatasetError(f"{self._file}: {error}") from error
        found, generators = _read(self._rows, self._names, given.generator)
        _check_generators(path.name, given.generator, generators, self._rows)
        self._hashes, self._places = _index(found, self._rows, self._names)

    def __len__(self) -> int:
        """Keys and prompts that it can be asked by."""
        return len(self._hashes)

    def find(self, item: Item, ask: AnyAsk) -> Generation | Failure:
        """The answer to a turn of an item, or why there is none."""
        if not isinstance(ask, GenerateAsk) or ask.turn < 1:
            return _UNSUPPORTED
        said = f"{self._file} has no answer to {item.key!r}, turn {ask.turn}"
        # The key is tried before the prompt, and an answer to the turn before one to all turns.
        addresses = [
            _hash(kind, value, turn)
            for kind, value in (("key", key_text(item.key)), ("prompt", item.prompt.strip()))
            for turn in (ask.turn, 0)
        ]
        for address in addresses:
            at = int(np.searchsorted(self._hashes, np.uint64(address)))
            there = at < len(self._hashes) and int(self._hashes[at]) == address
            place = int(self._places[at]) if there and self._places[at] != _SEVERAL else None
            if place is None:
                continue
            try:
                row = answer_row(self._rows.row(place), self._names)
            except (FormError, DatasetError) as error:
                return _no_answer(f"{self._rows.where(place)}: {error}")
            # Equal keys may be an accident: unless the column was named, prompts must agree.
            is_sure = self._names.key or not row.prompt or row.turn > 1
            if is_sure or row.prompt.strip() == item.prompt.strip():
                return self._text_of(row, item, ask)
            said = (
                f"{self._rows.where(place)} has the key {item.key!r} but a different prompt; "
                "if they belong together, set 'key'"
            )
        return _no_answer(said)

    def _text_of(self, row: AnswerRow, item: Item, ask: GenerateAsk) -> Generation | Failure:
        if ask.repeat >= len(row.samples):
            n = len(row.samples)
            said = f"{self._file} has {n} answers to {item.key!r}, not {ask.repeat + 1}"
            return _no_answer(said)
        turns = row.samples[ask.repeat]
        number = 0 if row.turn else ask.turn - 1
        if number >= len(turns):
            said = f"{self._file} answers {len(turns)} turns of {item.key!r}, not turn {ask.turn}"
            return _no_answer(said)
        text, where = turns[number], f"{self._file}, item {item.key!r}, turn {ask.turn}"
        # Nothing tells that a model ended there by itself; in a field, who labelled it has seen it.
        is_blank = text is not None and not text.strip()
        return _no_answer(f"{where}: empty, no answer") if is_blank else _answer(text, where)


_UNSUPPORTED: Final = Failure(
    "unsupported",
    "its answers are given: it cannot generate, score or judge",
    permanent=True,
)


def _no_answer(message: str) -> Failure:
    return Failure("no_answer", message, permanent=True)


def _in_field(item: Item, ask: AnyAsk, column: str) -> Generation | Failure:
    if not isinstance(ask, GenerateAsk) or ask.turn < 1:
        return _UNSUPPORTED
    value = item.fields.get(column)
    turns = [value] if isinstance(value, str) else value
    if ask.repeat or not isinstance(turns, list) or len(turns) < ask.turn:
        return _no_answer(f"the item {item.key!r} has no {column!r} for turn {ask.turn}")
    text = turns[ask.turn - 1]
    if text is not None and not isinstance(text, str):
        return _no_answer(f"the {column!r} of item {item.key!r} is not text")
    return _answer(text, f"the {column!r} of item {item.key!r}, turn {ask.turn}")


def _answer(text: str | None, where: str) -> Generation | Failure:
    """An answer as it is given; what a program writes in the place of one is none."""
    if text is None:
        return _no_answer(f"{where}: null, no answer")
    if found := _ERROR.match(text):
        return _no_answer(f"{where}: {found[1]} stands for an error, not for an answer")
    return Generation(text, GIVEN)


def _read(
    rows: Rows, names: Names, generator: str | None
) -> tuple[list[tuple[int, AnswerRow]], dict[str, int]]:
    """The rows of one generator with where they stand, texts left out; and how many each has."""
    faults = Faults()
    generators: dict[str, int] = {}
    found: list[tuple[int, AnswerRow]] = []
    n_answered = 0
    for index in range(len(rows)):
        try:
            row = answer_row(rows.row(index), names)
        except FormError as error:
            faults.add(rows.where(index), str(error))
            continue
        generators[row.generator] = generators.get(row.generator, 0) + 1
        if generator is None or row.generator == generator:
            n_answered += any(text and text.strip() for turns in row.samples for text in turns)
            found.append((index, row._replace(samples=())))
    faults.check()
    if found and not n_answered:
        raise DatasetError(
            f"{rows.where(found[0][0])}: no text for an answer, as in all other rows"
        )
    return found, generators


def _check_generators(file: str, generator: str | None, there: dict[str, int], rows: Rows) -> None:
    """Raises DatasetError where it is not clear whose answers are meant."""
    names = ", ".join(repr(name) for name in list(there)[:_SHOWN])
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    if generator is not None and generator not in there:
        what = f"there are {names}{more}" if has_generator(rows.columns) else "it names no model"
        raise DatasetError(f"{file}: no answers by {generator!r}; {what}")
    if generator is None and len(there) > 1:
        raise DatasetError(f"{file}: answers by {names}{more}; choose one with 'generator'")
    if not there:
        raise DatasetError(f"{file}: has no answers")


def _index(
    found: list[tuple[int, AnswerRow]], rows: Rows, names: Names
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Sorted addresses and the row of each."""
    places: dict[int, int] = {}
    faults = Faults()
    for index, row in found:
        # The row of a later turn has that turn as its prompt, so only its key tells the item.
        prompt = row.prompt.strip() if row.turn <= 1 else ""
        by_key = _hash("key", row.key, row.turn) if row.key else None
        by_prompt = _hash("prompt", prompt, row.turn) if prompt else None
        for address in (by_key, by_prompt):
            if address is None:
                continue
            other = places.setdefault(address, index)
            if other in {index, _SEVERAL}:
                continue
            one, two = (answer_row(rows.row(place), names) for place in (other, index))
            if one.samples == two.samples:
                continue
            if address == by_prompt and by_key is not None:
                places[address] = _SEVERAL
            else:
                name = row.key or row.prompt[:40]
                faults.add(rows.where(index), f"{name!r} was answered at {rows.where(other)} too")
    faults.check()
    hashes = np.fromiter(places, np.uint64, len(places))
    order = np.argsort(hashes)
    values = np.fromiter(places.values(), np.int32, len(places))
    return hashes[order], values[order]


def _hash(*parts: object) -> int:
    return int.from_bytes(digest("answer", *parts)[:8], "little")
