"""Answers that exist already, in the forms that programs write: found by key, else by prompt.

What stays in memory are 12 bytes an answer; texts are read from the file when they are asked for.
"""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from orchestrator.ask import AnyAsk, GenerateAsk, digest
from orchestrator.dataset.answers import AnswerRow, Form, answer_row, find_form
from orchestrator.dataset.fields import key_text
from orchestrator.dataset.files import open_rows
from orchestrator.dataset.rows import Faults, Rows
from orchestrator.dataset.shapes import RowError, at, flow
from orchestrator.disk.files import sha256_of
from orchestrator.errors import DatasetError
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.records import GIVEN, Failure, Generation, Item, unsupported
from orchestrator.wire.answers import BROKEN, LENGTH, UNSAID, WITHHELD, no_answer

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


def given_answers(given: GivenAnswers, model: str) -> tuple[Find, dict[str, str], str]:
    """Return a function that finds a model's answers, its identity, and what a file was read as.

    Raises:
        DatasetError: If the file is missing or malformed, with every row that is not right.
    """
    if given.field is not None:
        column = given.field
        identity = {"answers": f"field {column}"}
        return (lambda item, ask: _in_field(item, ask, column)), identity, ""
    answers = AnswerFile(given, model)
    return answers.find, answers.identity, answers.read_as


def _advice(given: GivenAnswers, model: str, when: str = "", /, **settings: str) -> str:
    """Return what to set, any one of the settings, as a recipe takes it; empty for none."""
    if not settings:
        return ""
    path = os.path.relpath(given.path or "")
    now = given.model_dump(exclude_none=True) | {"path": path}
    one, *others = ({name: value} for name, value in settings.items())
    or_other = "".join(f", or {flow(other)[1:-1]} in its place" for other in others)
    return f"; set{when} models: {flow({model: {'answers': now | one}})}{or_other}"


class AnswerFile:
    """The answers of one model in a file.

    Raises:
        DatasetError: If the file is missing or malformed, with every row that is not right.
    """

    def __init__(self, given: GivenAnswers, model: str) -> None:
        path = Path(given.path or "")
        self._advice = partial(_advice, given, model)
        names = {name: getattr(given, name) or "" for name in ("key", "prompt", "text")}
        self._has_named_key = bool(given.key)
        self._file = path.name
        where = ""
        try:
            self._rows = open_rows(path, path.name, rows=given.rows)
            where = f"{self._rows.where(0) if len(self._rows) else self._file}: "
            self._form = find_form(self._rows, **names)
        except RowError as error:
            raise DatasetError(f"{where}{error}{self._advice(**error.settings)}") from error
        self.identity = {"answers": sha256_of(path), "generator": given.generator or ""} | {
            f"answers.{name}": value
            for name, value in (*names.items(), ("rows", given.rows))
            if value
        }
        found, generators, n_empty = self._read(given.generator)
        self._check_generators(given.generator, generators)
        self.read_as = _read_as(self._rows, self._form, found, n_empty)
        first = found[0][1].key
        self._first = f" (the first there is to {first!r:.80})" if first else ""
        self._hashes, self._places = _index(found, self._rows, self._form)

    def find(self, item: Item, ask: AnyAsk) -> Generation | Failure:
        """The answer to a turn of an item, or why there is none."""
        if not isinstance(ask, GenerateAsk) or ask.turn < 1:
            return _UNSUPPORTED
        said = f"{self._file} has no answer to {item.key!r}, turn {ask.turn}{self._first}"
        # The key is tried before the prompt, and an answer to the turn before one to all turns.
        n_turns = 1 + len(item.followups)
        places = [
            self._place(kind, value, turn, repeat)
            for kind, value in (("key", key_text(item.key)), ("prompt", item.prompt.strip()))
            for turn in (ask.turn, 0)
            for repeat in sorted({ask.repeat, 0}, reverse=True)
        ]
        for place in (one for one in places if one != _SEVERAL):
            try:
                row = answer_row(self._rows.row(place), self._form)
            except DatasetError as error:
                return no_answer(f"{self._rows.where(place)}: {error}")
            is_sure = self._has_named_key or row.turn > 1
            begin = row.begin(item.prompt, n_turns, is_sure=is_sure)
            if begin is not None:
                return self._text_of(row, item, ask, begin)
            there = self._rows.row(place)
            column = next(one for one in self._form.key if key_text(at(there, one)))
            said = (
                f"{self._rows.where(place)} has the key {item.key!r} but a different prompt"
                f"{self._advice(', if they belong together', key=column)}"
            )
        # Keys that look the same, or nearly: another Unicode form, blanks at the end, other case.
        key = item.key
        looks = [normalize("NFC", key), normalize("NFD", key), key.strip(), f"{key} "]
        for other in (*looks, key.lower(), key.upper(), key.casefold()):
            near = {self._place("key", other, turn, 0) for turn in (ask.turn, 0)}
            if other != key and near != {_SEVERAL}:
                return no_answer(f"{said}; it has one to {other!a}, not to {key!a}")
        return no_answer(said)

    def _read(
        self, generator: str | None
    ) -> tuple[list[tuple[int, AnswerRow]], dict[str, int], int]:
        """The rows of one generator with where they stand, texts left out.

        Also how many each generator has, and how many of those that were read have no text.
        """
        rows, faults = self._rows, Faults()
        generators: dict[str, int] = {}
        found: list[tuple[int, AnswerRow]] = []
        n_empty = 0
        for index in range(len(rows)):
            try:
                row = answer_row(rows.row(index), self._form)
            except RowError as error:
                faults.add(rows.where(index), f"{error}{self._advice(**error.settings)}")
                continue
            is_empty = not any(text and text.strip() for turns, _ in row.samples for text in turns)
            if not (is_empty and not row.generator):
                # A request that failed names no model.
                generators[row.generator] = generators.get(row.generator, 0) + 1
            if generator is None or row.generator == generator:
                n_empty += is_empty
                found.append((index, row._replace(samples=())))
        faults.check()
        if found and n_empty == len(found):
            where = rows.where(found[0][0])
            raise DatasetError(f"{where}: no text for an answer, as in all other rows")
        return found, generators, n_empty

    def _check_generators(self, generator: str | None, there: dict[str, int]) -> None:
        """Raises DatasetError where it is not clear whose answers are meant."""
        names = ", ".join(repr(name) for name in list(there)[:_SHOWN])
        more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        if generator is not None and generator not in there:
            what = f"there are {names}{more}" if any(there) else "it names no model"
            raise DatasetError(f"{self._file}: no answers by {generator!r}; {what}")
        if generator is None and len(there) > 1:
            advice = self._advice(generator=next(iter(there)))
            raise DatasetError(f"{self._file}: answers by {names}{more}{advice}")
        if not there:
            raise DatasetError(f"{self._file}: has no answers")

    def _place(self, *address: object) -> int:
        """The row at an address; `_SEVERAL` for none that it could be."""
        wanted = np.uint64(_hash(*address))
        at = np.searchsorted(self._hashes, wanted)
        is_there = at < len(self._hashes) and self._hashes[at] == wanted
        return int(self._places[at]) if is_there else _SEVERAL

    def _text_of(
        self, row: AnswerRow, item: Item, ask: GenerateAsk, begin: int
    ) -> Generation | Failure:
        n = row.repeat + len(row.samples)
        if not row.repeat <= ask.repeat < n:
            return no_answer(f"{self._file} has {n} answers to {item.key!r}, not {ask.repeat + 1}")
        turns, end = row.samples[ask.repeat - row.repeat]
        turns = turns[begin:]
        number = 0 if row.turn else ask.turn - 1
        if number >= len(turns):
            said = f"{self._file} answers {len(turns)} turns of {item.key!r}, not turn {ask.turn}"
            return no_answer(said)
        text, where = turns[number], f"{self._file}, item {item.key!r}, turn {ask.turn}"
        # Nothing tells that a model ended there by itself; in a field, who labelled it has seen it.
        is_blank = text is not None and not text.strip()
        if is_blank:
            return no_answer(f"{where}: empty, no answer")
        return _answer(text, where, end if number + 1 == len(turns) else UNSAID)


_UNSUPPORTED: Final = unsupported("its answers are given: it cannot generate, score or judge")


def _in_field(item: Item, ask: AnyAsk, column: str) -> Generation | Failure:
    if not isinstance(ask, GenerateAsk) or ask.turn < 1:
        return _UNSUPPORTED
    value = item.fields.get(column)
    turns = [value] if isinstance(value, str) else value
    if ask.repeat or not isinstance(turns, list) or len(turns) < ask.turn:
        return no_answer(f"the item {item.key!r} has no {column!r} for turn {ask.turn}")
    text = turns[ask.turn - 1]
    if text is not None and not isinstance(text, str):
        return no_answer(f"the {column!r} of item {item.key!r} is not text")
    return _answer(text, f"the {column!r} of item {item.key!r}, turn {ask.turn}")


def _answer(text: str | None, where: str, end: str = UNSAID) -> Generation | Failure:
    """An answer as it is given; what a program writes in the place of one is none."""
    if text is None:
        return no_answer(f"{where}: null, no answer")
    if found := _ERROR.match(text):
        return no_answer(f"{where}: {found[1]} stands for an error, not for an answer")
    if end in {WITHHELD, BROKEN}:
        return no_answer(f"{where}: its finish_reason says that it was {end}, no whole answer")
    return Generation(text, LENGTH if end == LENGTH else GIVEN)


def _read_as(rows: Rows, form: Form, found: list[tuple[int, AnswerRow]], n_empty: int) -> str:
    """The form, and where the parts of an answer come from, as a sentence."""
    first = rows.row(found[0][0])
    model, text = (
        next((repr(path) for path in names if at(first, path) not in (None, "")), "")
        for names in (form.model, form.text)
    )
    model = f"model from {model}, " if model else ""
    empty = f"; {n_empty:,} of {len(found):,} rows without text" if n_empty else ""
    text = text or repr(form.text[0])
    return f"{rows.file} read as {form.name}: {model}text from {text}{empty}"


def _index(
    found: list[tuple[int, AnswerRow]], rows: Rows, form: Form
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Sorted addresses and the row of each."""
    places: dict[int, int] = {}
    faults = Faults()
    for index, row in found:
        # The row of a later turn has that turn as its prompt, so only its key tells the item.
        prompts = row.prompts if row.turn <= 1 else ()
        told = [("key", row.key), *(("prompt", prompt.strip()) for prompt in prompts[::-1])]
        addresses = [_hash(kind, text, row.turn, row.repeat) for kind, text in told if text]
        for address in addresses:
            other = places.setdefault(address, index)
            if other in {index, _SEVERAL}:
                continue
            one, two = (answer_row(rows.row(place), form) for place in (other, index))
            if one.samples == two.samples:
                continue
            if address != addresses[0]:
                places[address] = _SEVERAL
            else:
                name = row.key or row.prompts[-1][:40]
                what = f"{name!r} was answered at {rows.where(other)} too"
                faults.add(rows.where(index), f"{what}; keep one of the two")
    faults.check()
    hashes = np.fromiter(places, np.uint64, len(places))
    order = np.argsort(hashes)
    values = np.fromiter(places.values(), np.int32, len(places))
    return hashes[order], values[order]


def _hash(*parts: object) -> int:
    return int.from_bytes(digest("answer", *parts)[:8], "little")
