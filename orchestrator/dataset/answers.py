"""Rows of files of answers, in the forms that programs write, as one kind of record.

A form is an entry of `FORMS`: columns that tell it, and paths of the parts in a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from orchestrator.dataset.fields import DEFAULTS, OTHER_PROMPTS, key_text
from orchestrator.dataset.rows import Rows
from orchestrator.dataset.shapes import (
    CHATS,
    RowError,
    at,
    available,
    chat,
    from_text,
    is_chat,
    is_list,
    likely,
    written,
)
from orchestrator.wire.answers import UNSAID, end_of

_MANY: Final = 10**9
_KEYS: Final = (
    "key", "item", "question_id", "doc_id", "id", "uid", "custom_id", "session_id", "task_id",
)  # fmt: skip
_PROMPTS: Final = (*DEFAULTS["prompt"], *OTHER_PROMPTS, "origin_prompt")
_TEXTS: Final = ("text", "answer", "output", "response", "completion", "prediction")
_MODELS: Final = ("generator", "model_id", "model")
_REASONS: Final = (
    "finish_reason", "finish_reason.reason", "stop_reason", "finishReason", "stopReason"
)  # fmt: skip
_ACTUAL: Final = ("actualOutput", "actual_output")
# Of a reply, the part that holds what was said, the first that is there.
_REPLIES: Final = (
    "choices", "candidates", "outputs", "message", "output", "completion", "generated_text",
    "generation", "answer", "response", "result",
)  # fmt: skip


class Form(NamedTuple):
    """A form of rows.

    Attributes:
        name: As the announcement has it.
        told_by: Columns that every row of the form has.
        text: Paths of the answer, the first that is there.
        key: Paths of the item's key.
        prompt: Paths of its prompt.
        model: Paths of the name of the model.
    """

    name: str
    told_by: tuple[str, ...]
    text: tuple[str, ...]
    key: tuple[str, ...] = _KEYS
    prompt: tuple[str, ...] = _PROMPTS
    model: tuple[str, ...] = _MODELS


def _under(path: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{path}.{name}" for name in names)


FORMS: Final = (
    Form(
        "results of a batch (OpenAI, vLLM run-batch)", ("custom_id", "response"),
        ("response.body", "response"), ("custom_id",), (), ("response.body.model",),
    ),
    Form(
        "results of a batch (Anthropic)", ("custom_id", "result"),
        ("result.message",), ("custom_id",), (), ("result.message.model",),
    ),
    Form(
        "a log of Inspect", ("id", "epoch", "input"),
        ("output",), ("id",), ("input",), ("eval.model", "output.model", "model"),
    ),
    Form(
        "a scenario state of HELM", ("instance", "request"),
        ("result.completions",), ("instance.id",), ("instance.input",), ("request.model",),
    ),
    Form(
        "results of promptfoo", ("provider", "response"), ("response",),
        (*_under("vars", _KEYS), *_under("testCase.vars", _KEYS)),
        (*_under("vars", _PROMPTS), *_under("testCase.vars", _PROMPTS), "prompt", "prompt.raw"),
        ("provider.label", "provider.id", "provider"),
    ),
    *(Form("test cases of DeepEval", (name,), (name,)) for name in _ACTUAL),
    *(
        Form(
            "samples of lm-eval", (name,), (name,),
            prompt=(*_under("doc", _PROMPTS), "arguments.0.0", "arguments.gen_args_0.arg_0"),
        )
        for name in ("resps", "filtered_resps")
    ),
    Form(
        "results of a batch (Gemini)", ("request", "response"), ("response",),
        prompt=("request.contents", "request.messages"), model=("response.modelVersion",),
    ),
    Form(
        "results of a batch (Bedrock)", ("recordId", "modelOutput"), ("modelOutput",),
        ("recordId",), ("modelInput.messages", "modelInput.prompt"),
    ),
    Form("outputs of vLLM", ("request_id", "outputs"), ("outputs",), ("request_id",)),
    Form("runs of LangSmith", ("inputs", "outputs"), ("outputs",), prompt=("inputs",)),
    Form("choices (MT-Bench, Arena-Hard v0.1)", ("choices",), ("choices",)),
)  # fmt: skip
"""Of other programs, the first whose columns are there; else a column of `_TEXTS` or a chat."""


Sample = tuple[tuple[str | None, ...], str]


class AnswerRow(NamedTuple):
    """Answers of one model to one item.

    Attributes:
        key: Of the item; empty where the row has none.
        prompts: Of a chat that of each answer; else the item's, or none.
        generator: Who answered; empty where the row does not say.
        turn: Which turn this answers; 0 where `samples` hold all turns.
        repeat: Which independent answer the first sample is.
        samples: Independent answers, each the text of every turn, None for one that is null: who
            wrote the file had no answer; with how the last ended, as `wire.answers` names it.
    """

    key: str
    prompts: tuple[str, ...]
    generator: str
    turn: int
    repeat: int
    samples: tuple[Sample, ...]

    def begin(self, prompt: str, n_turns: int, *, is_sure: bool) -> int | None:
        """The place of the answer to an item's first turn; None where its prompt differs.

        A chat may begin before the item does. Equal keys may be an accident: unless they are
        sure to be right, prompts must agree.
        """
        last = max(0, len(self.prompts) - n_turns)
        same = [place for place, said in enumerate(self.prompts) if said.strip() == prompt.strip()]
        if is_sure or not self.prompts or last in same:
            return last
        return same[0] if len(same) == 1 else None


def find_form(rows: Rows, *, key: str = "", prompt: str = "", text: str = "") -> Form:
    """The form of a file, told by its columns and first row; with the columns that are named.

    Raises:
        RowError: If there is none, or if several columns could hold the answers: another may hold
            the gold answer.
    """
    found = next((form for form in FORMS if set(form.told_by) <= set(rows.columns)), None)
    if found is None or text:
        texts = [name for name in _TEXTS if name in rows.columns]
        chats = [name for name in CHATS if name in rows.columns]
        first = rows.row(0) if len(rows) else {}
        ended = [name for name in chats if _is_answered(first.get(name))]
        could = [text] if text else [*texts, *ended]
        if len(could) > 1:
            either = " and ".join(map(repr, could))
            raise RowError(f"{either} could each be the answer", text=could[-1])
        if not could:
            forms = ", ".join(dict.fromkeys(form.name for form in FORMS))
            raise RowError(
                f"no answer: none of {', '.join(_TEXTS)}, a chat that ends with one, or one of "
                f"these forms: {forms}; {available(rows.columns)}",
                text=likely(first, (*_TEXTS, *_REPLIES)) or "COLUMN",
            )
        name = "chats" if could[0] in ended else "rows with a text"
        found = Form(name, (), (could[0],), prompt=(*_PROMPTS, *chats))
    if key or prompt:
        # A prompt that the user named is all that counts.
        prompts = (prompt,) if prompt else found.prompt
        found = found._replace(key=(key,) if key else (), prompt=prompts)
    return found


def answer_row(row: Mapping[str, object], form: Form) -> AnswerRow:
    """The answers in a row.

    Raises:
        RowError: If it holds none, or can't be matched with an item.
    """
    try:
        key = next((text for name in form.key if (text := key_text(at(row, name)))), "")
        prompts, samples = _answers(row, form)
        prompts = prompts or tuple(_asked(row, form))[:1]
    except RecursionError as error:
        raise RowError("a value is too deep") from error
    if not key and not prompts:
        raise RowError(
            f"neither a key ({', '.join(form.key)}) nor a prompt ({', '.join(form.prompt)}) to "
            f"find its item by; {available(list(row))}",
            key=likely(row, form.key) or "COLUMN",
            prompt=likely(row, form.prompt) or "COLUMN",
        )
    generator = next((name for path in form.model if (name := _plain(at(row, path)))), "")
    turn, epoch = _count(row, "turn"), _count(row, "epoch") if "epoch" in form.told_by else 0
    return AnswerRow(key, prompts, generator, turn, max(0, epoch - 1), samples)


def _is_answered(value: object) -> bool:
    try:
        value = from_text(value, "")
        roles = [role for role, _ in chat(value, "") if role != "tool"] if is_chat(value) else []
    except RowError:
        return False
    return roles[-1:] == ["assistant"]


def _asked(row: Mapping[str, object], form: Form) -> Iterator[str]:
    """Yield each prompt that a row has: a text, or the last that a chat asks."""
    for path in form.prompt:
        value = at(row, path)
        try:
            if is_chat(value := from_text(value, path)):
                turns = list(chat(value, path))
                value = next((said for role, said in turns[::-1] if role == "user"), None)
            if isinstance(value, Mapping):
                value = next((value[name] for name in _PROMPTS if name in value), value)
            text = _plain(value) or written(value, path)
        except RowError:
            text = _plain(at(row, path))
        if text:
            yield text


def _answers(row: Mapping[str, object], form: Form) -> tuple[tuple[str, ...], tuple[Sample, ...]]:
    """The prompts of a chat, and samples of turns."""
    path = next((name for name in form.text if at(row, name) is not None), form.text[0])
    if path.partition(".")[0] not in row and not row.get("error"):
        text = likely(row, (*_TEXTS, *_REPLIES)) or "COLUMN"
        raise RowError(f"no answer: {path!r} is missing; {available(list(row))}", text=text)
    value = at(row, path)
    if path in CHATS:
        value = from_text(value, path)
    if path.endswith("resps"):
        # lm-eval: a list by request of lists of repeats, or of texts after a filter.
        return (), _responses(value, path)
    if is_chat(value):
        turns = list(chat(value, path))
        said = tuple(_exchanges(turns))
        texts = tuple(text for _, text in said)
        return tuple(prompt for prompt, _ in said), ((texts, _end(row, UNSAID)),)
    return (), tuple(_samples(value, path, _end(row, UNSAID)))


def _exchanges(turns: Sequence[tuple[str, str | None]]) -> Iterator[tuple[str, str | None]]:
    """Yield each question with the last answer to it, which is none where tools were called."""
    prompt: str | None = None
    answer: str | None = None
    for role, text in turns:
        if role == "user":
            if prompt is not None:
                yield prompt, answer
            prompt, answer = text or "", None
        elif role != "system":
            answer = text
    yield prompt or "", answer


def _end(value: Mapping[str, object], before: str) -> str:
    """Return how a reply ended, by its own word, else `before`, that of what is around it."""
    said = (at(value, name) for name in _REASONS)
    return next((end_of(one) for one in said if isinstance(one, str)), before)


def _samples(value: object, path: str, end: str) -> Iterator[Sample]:
    """Yield each independent answer that a value holds."""
    if isinstance(value, Mapping):
        end = _end(value, end)
        if "turns" in value:  # FastChat
            yield _turns(value["turns"], f"{path}[].turns"), end
            return
        for name in _REPLIES:
            if name in value and not (value[name] == [] and "completion" in value):
                yield from _samples(value[name], f"{path}.{name}", end)
                return
        said = value if {"content", "text", "type"} & value.keys() else None
        if said is None and not value.get("error"):
            raise RowError(f"{path!r} must be a text or a list of texts")
        yield (written(said, path, between=""),), end
    elif is_list(value) and value and all(isinstance(one, Mapping) for one in value):
        parts: list[Any] = list(value)
        if all("type" in one and "index" not in one for one in parts):  # of one answer
            told = [one for one in parts if one.get("type") not in {"reasoning", "tool_use"}]
            yield (written(told, path, between=""),), end
            return
        try:
            parts.sort(key=lambda choice: choice.get("index") or 0)
        except TypeError as error:
            raise RowError(f"{path!r} have indexes that are not numbers") from error
        yield from (one for each in parts for one in _samples(each, path, end))
    elif value == [] and path != "choices":  # nobody answered
        yield (None,), end
    elif path.rpartition(".")[2] == "choices" and value is not None:
        raise RowError(f"{path!r} must be a list of {{index, turns}}, or of messages")
    else:
        yield _turns(value, path), end


def _responses(value: object, name: str) -> tuple[Sample, ...]:
    if is_list(value) and len(value) == 1:
        inner = value[0]
        texts = [inner] if isinstance(inner, str) else inner
        if is_list(texts) and texts and all(one is None or isinstance(one, str) for one in texts):
            said = (text for text in texts if text is None or isinstance(text, str))
            return tuple(((text,), UNSAID) for text in said)
    raise RowError(f"{name!r} holds no text: only tasks that generate have answers")


def _turns(value: object, name: str) -> tuple[str | None, ...]:
    if is_list(value) and value:
        return tuple(written(one, f"{name!r} must be a text or a list of texts:") for one in value)
    if value is None or isinstance(value, str):
        return (value,)
    raise RowError(f"{name!r} must be a text or a list of texts")


def _count(row: Mapping[str, object], name: str) -> int:
    value = row.get(name)
    if value is None:
        return 0
    text = key_text(value)
    if text.isascii() and text.isdecimal() and 0 < int(text[:12]) < _MANY:
        return int(text)
    raise RowError(f"{name!r} must be a number from 1, not {value!r:.40}")


def _plain(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
