"""Reply bodies -> `Generation`, `Scored`, `Choice` or `Failure`. Never raises, never makes up.

Also load figures in Prometheus text.
"""

import re
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.ask import ScoreAsk
from orchestrator.records import (
    TOKEN_FEATURES,
    Choice,
    FloatArray,
    Generation,
    Scored,
    TopLogprobs,
    unparseable,
    unsupported,
)
from orchestrator.wire._located import check_lists
from orchestrator.wire.answers import Answer, Entry, ListedEntry, Message, withheld
from orchestrator.wire.drawn import Reading, drawn
from orchestrator.wire.failures import Failed, as_value
from orchestrator.wire.parsing import (
    FILTERED,
    NO_USAGE,
    Counted,
    Decoder,
    Reply,
    TokenId,
    error_in,
    logprob,
    logprob_array,
    no_logprobs,
    text_of,
)


class _Scores(Counted, gc=False):
    logprobs: list[float | None] | None = None
    token_ids: list[TokenId] | None = None


class _ObservedScores(_Scores, gc=False):
    top_token_ids: list[list[TokenId]] | None = None
    top_logprobs: list[list[float | None]] | None = None
    features: dict[str, list[float | list[float | None] | None]] | None = None


_scores: Final = Decoder(_Scores)
_observed_scores: Final = Decoder(_ObservedScores)
_MOST_HEADS: Final = 2**16


@as_value
def scored(body: bytes, ask: ScoreAsk, method: str, secret: str) -> Scored:
    """Teacher-forced log-probabilities from our own `/v1/score`; the ids must be those asked.

    Where a text was asked, the ids are the server's; with `end_of_turn` one more follows. The reply
    must list as many alternatives as asked at each position; they are put in order, most likely
    first. It must hold every feature asked for.

    Failures: "unparseable", "no_logprobs", "unsupported", and what an error in the reply says.
    """
    # No more is read than was asked for.
    is_observed = bool(ask.features or ask.top_logprobs)
    reply: _Scores = (_observed_scores if is_observed else _scores)(body, secret)
    if reply.error or reply.logprobs is None:
        raise Failed(error_in(body, secret))
    # A reply that names no ids is of those asked.
    implied = None if ask.end_of_turn else ask.token_ids or None
    ids = implied if reply.token_ids is None else tuple(reply.token_ids)
    said = _mismatch(ids, ask, len(reply.logprobs))
    if ids is None or said:
        raise Failed(unparseable(said))
    usage = reply.usage or NO_USAGE
    return Scored(
        np.array(ids, dtype=np.int32),
        logprob_array(reply.logprobs),
        usage.n_prompt,
        method=method,
        n_cached_tokens=usage.n_cached,
        top=_listed(reply, len(ids), ask.top_logprobs),
        features=_features(reply, len(ids), ask.features),
    )


def scored_nothing(method: str, ask: ScoreAsk) -> Scored:
    """The log-probabilities of no tokens: none, known without asking."""
    ids, values, top = np.empty(0, np.int32), np.empty(0, np.float32), ask.top_logprobs
    none = TopLogprobs(ids.reshape(0, top), values.reshape(0, top)) if top else None
    features = {
        name: values if name in TOKEN_FEATURES else values.reshape(0, 0) for name in ask.features
    }
    return Scored(ids, values, method=method, top=none, features=features or None)


@as_value
def choice(body: bytes, n_labels: int, method: str, secret: str) -> Choice:
    """Label probabilities from our own `/v1/choose`, in the order of the labels."""
    reply = _scores(body, secret)
    if reply.error or reply.logprobs is None:
        raise Failed(error_in(body, secret))
    if len(reply.logprobs) != n_labels:
        said = f"{n_labels} labels were requested and {len(reply.logprobs)} returned"
        raise Failed(unparseable(said))
    values = tuple(map(logprob, reply.logprobs))
    if all(value != value for value in values):
        raise Failed(no_logprobs("the reply gives no label a probability"))
    # Where the server knows nothing, the only bound is that of any probability: ln 1.
    upper = tuple(0.0 if value != value else value for value in values)
    usage = reply.usage or NO_USAGE
    return Choice(values, upper, method, usage.n_prompt, usage.n_cached)


def _mismatch(given: tuple[int, ...] | None, ask: ScoreAsk, n_logprobs: int) -> str:
    if given is None:
        return "the reply does not name the ids that were scored"
    asked = given[: len(given) - ask.end_of_turn]
    if len(asked) + ask.end_of_turn != len(given) or (ask.token_ids and asked != ask.token_ids):
        return "the server scored other ids than requested"
    if n_logprobs != len(given):
        return f"the server returned {n_logprobs} log-probabilities for {len(given)} ids"
    return ""


def _features(
    reply: _Scores, n_tokens: int, asked: tuple[str, ...]
) -> dict[str, FloatArray] | None:
    """The features asked for, of the shapes that `Scored` states."""
    if not asked or not isinstance(reply, _ObservedScores):
        return None
    given = reply.features or {}
    if missing := sorted(set(asked) - given.keys()):
        said = f"the server does not return {', '.join(missing)}; the embedded server does"
        raise Failed(unsupported(said))
    found: dict[str, FloatArray] = {}
    for name in asked:
        array = _numbers(given[name])
        if array is None or (
            array.shape != (n_tokens,)
            if name in TOKEN_FEATURES
            else array.ndim != 2 or array.size > _MOST_HEADS
        ):
            said = f"the server's {name} has the wrong shape, or a number out of range"
            raise Failed(unparseable(said))
        found[name] = array
    return found


def _numbers(given: list[float | list[float | None] | None]) -> FloatArray | None:
    """An array of one or two axes, null as nan; None where rows differ or a number is too large."""
    rows = [row for row in given if isinstance(row, list)]
    if rows and (len(rows) != len(given) or len({*map(len, rows)}) > 1):
        return None
    wide = np.array(given, dtype=np.float64)
    if np.any(np.abs(wide) > np.finfo(np.float32).max):
        return None
    return wide.astype(np.float32)


def _listed(reply: _Scores, n_tokens: int, k: int) -> TopLogprobs | None:
    """The alternatives of a reply, both arrays of shape (n_tokens, k), most likely first."""
    if not k or not isinstance(reply, _ObservedScores):
        return None
    ids, rows = reply.top_token_ids, reply.top_logprobs
    if ids is None or rows is None:
        raise Failed(no_logprobs("the reply lists no alternatives"))
    widths = {*map(len, ids), *map(len, rows)}
    if not len(ids) == len(rows) == n_tokens or widths - {k}:
        said = f"the server does not list {k} alternatives at each of {n_tokens} positions"
        raise Failed(unparseable(said))
    values = logprob_array([value for row in rows for value in row]).reshape(n_tokens, k)
    check_lists(values)
    order = np.argsort(-values, axis=1, kind="stable")
    return TopLogprobs(
        np.take_along_axis(np.array(ids, dtype=np.int32).reshape(n_tokens, k), order, axis=1),
        np.take_along_axis(values, order, axis=1),
    )


# Replies of `/v1/completions`, the legacy route that base models are asked by -> `Generation`.
#
# Log-probabilities come as parallel lists, alternatives as mappings from a token's text. What is
# made of them is what is made of a chat reply.


class _Choice(Answer[ListedEntry], gc=False):
    text: str | None = None


_completion: Final = Decoder(Reply[_Choice], needs="choices")


@as_value
def completion(body: bytes, reading: Reading) -> Generation:
    """A drawn text from a completion; failures as those of a chat reply."""
    reply = _completion(body, reading.secret)
    choice = reply.first
    if choice.text is None:
        raise Failed(withheld(choice, reading.secret) or error_in(body, reading.secret))
    choice.message = Message(choice.text)
    return drawn(choice, reply.usage or NO_USAGE, reading)


class _Version(msgspec.Struct, gc=False):
    version: str = ""
    fingerprint: str = ""
    system_fingerprint: str = ""
    # TGI's commit.
    sha: str | None = None


class _Model(msgspec.Struct, gc=False):
    id: str = ""


class _Models(msgspec.Struct, gc=False):
    data: list[_Model] | None = None


_versions: Final = Decoder(_Version)
_models: Final = Decoder(_Models)
_chat: Final = Decoder(Reply[Answer[Entry]], needs="choices")
_listed_chat: Final = Decoder(Reply[Answer[ListedEntry]], needs="choices")


@as_value
def generation(body: bytes, reading: Reading) -> Generation:
    """A drawn text from a chat completion.

    Failures: "unparseable", "no_logprobs", "no_answer" and "server_error" as of
    `orchestrator.wire.answers.missing`, and what an error in the reply says.
    """
    reply: Reply[Any] = (_listed_chat if reading.top else _chat)(body, reading.secret)
    answer: Answer[Any] = reply.first
    if answer.message is None:
        raise Failed(withheld(answer, reading.secret) or error_in(body, reading.secret))
    found = drawn(answer, reply.usage or NO_USAGE, reading)
    # An empty text is none where a filter says that it took it.
    if not found.text and FILTERED.search(body):
        raise Failed(error_in(body, reading.secret))
    return found


@as_value
def version(body: bytes) -> tuple[str, str]:
    """Version and fingerprint that a server states; empty where it states none."""
    reply = _versions(body)
    fingerprint = reply.fingerprint or reply.system_fingerprint or reply.sha or ""
    return text_of(reply.version), text_of(fingerprint)


@as_value
def model_names(body: bytes) -> tuple[str, ...]:
    """The names in a reply of `/v1/models`."""
    return tuple(model.id for model in _models(body).data or ())


# What servers call the same thing; each by its own prefix. llama.cpp counts as prompt tokens those
# alone that it did not find in its cache.
_FIELDS: Final = {
    b"num_requests_running": "running",
    b"num_requests_waiting": "waiting",
    b"num_running_reqs": "running",
    b"num_queue_reqs": "waiting",
    b"token_usage": "kv_cache",
    b"batch_current_size": "running",
    b"queue_size": "waiting",
    b"kv_cache_usage_perc": "kv_cache",
    b"prefix_cache_queries_total": "prefix_queries",
    b"prefix_cache_hits_total": "prefix_hits",
    b"llamacpp:requests_processing": "running",
    b"llamacpp:requests_deferred": "waiting",
    b"llamacpp:prompt_tokens_total": "computed",
    b"llamacpp:prompt_tokens_cached_total": "prefix_hits",
}
_SERIES: Final = re.compile(
    rb"^(?:orchestrator:|vllm:|sglang:|tgi_|(?=llamacpp:))("
    + b"|".join(_FIELDS)
    + rb")(?:\{([^}\n]*)\})?[ \t]+([0-9.eE+-]+)",
    re.MULTILINE,
)
_MOST: Final = 2.0**53
_MODEL: Final = re.compile(rb'(?:^|,)\s*model_name="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load figures as the server publishes them; None where it does not.

    Attributes:
        running: Requests that it computes.
        waiting: Requests that wait for it.
        kv_cache: Share of its memory for keys and values that is taken, 0 to 1.
        prefix_queries: Prompt tokens that were looked up in its prefix cache since it started.
        prefix_hits: Those of them that were found.
        n_extra: Prompts that this connection has under way beyond one for each of its requests.
            Servers count prompts as requests.
    """

    running: int | None = None
    waiting: int | None = None
    kv_cache: float | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    n_extra: int = 0


def load_figures(text: bytes, model: str) -> ServerLoad | None:
    """Figures of `model`, or of the whole server where it does not tell models apart.

    Several engines of one model are added up; of how full their caches are, the fullest counts.
    None where there is no such figure.
    """
    mine: dict[str, float] = {}
    unnamed: dict[str, float] = {}
    for name, found, number in _SERIES.findall(text):
        value = figure(number)
        if value is None:
            continue
        labelled = _MODEL.search(found)
        if labelled is None:
            _add(unnamed, _FIELDS[name], value)
        elif _ESCAPED.sub(rb"\1", labelled[1]) == model.encode():
            _add(mine, _FIELDS[name], value)
    figures = mine or unnamed
    if not figures:
        return None
    kv_cache, computed = figures.pop("kv_cache", None), figures.pop("computed", None)
    if computed is not None and "prefix_hits" in figures:
        figures["prefix_queries"] = computed + figures["prefix_hits"]
    counts = {field: int(value) for field, value in figures.items()}
    return ServerLoad(kv_cache=kv_cache, **counts)


def _add(figures: dict[str, float], field: str, value: float) -> None:
    before = figures.get(field, 0.0)
    figures[field] = max(before, value) if field == "kv_cache" else before + value


def figure(number: bytes) -> float | None:
    """A published number; None for what is none, or is more than can be counted."""
    try:
        value = float(number)
    except ValueError:
        return None
    return max(0.0, value) if value <= _MOST else None
