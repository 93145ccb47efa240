"""The values that travel through a run: items, sampling settings, outcomes, failures.

All are immutable. `msgspec.Struct` is used where one is built per request (a frozen dataclass
costs several times as much to make); nothing here validates: recipes are validated when they
are loaded, replies when they are decoded.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
Floats = NDArray[np.float64]
Ints = NDArray[np.signedinteger[Any]]
Bools = NDArray[np.bool_]


class Message(NamedTuple):
    """One turn of a chat; role is system, user or assistant."""

    role: str
    content: str


Messages = tuple[Message, ...]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings of a draw, all sent explicitly, so no server default leaks in.

    Attributes:
        max_tokens: Upper bound on generated tokens, end-of-turn token included.
        temperature: 0 is greedy.
        top_p: 1 is off.
        top_k: 0 is off.
        stop: Strings that end the text; they are not part of it.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a dataset.

    Attributes:
        key: Unique in its dataset, stable between calls.
        messages: The conversation that a model is to answer.
        followups: Further turns of the user, each asked after the answer to the one before.
        reference: The right or a good answer, where the dataset has one; with followups that of
            the first turn.
        references: One for each turn, where turns after the first have any; else empty.
        category: Where the dataset has one.
        cluster: Name of the group of items that depend on each other, such as the questions on one
            passage; None where the item stands alone. No model or judge sees it.
        fields: Every other column, by name.
    """

    key: str
    messages: Messages
    followups: tuple[str, ...] = ()
    reference: str | None = None
    references: tuple[str | None, ...] = ()
    category: str | None = None
    cluster: str | None = None
    fields: Mapping[str, Any] = {}

    @property
    def prompt(self) -> str:
        """The text of the last user turn that is given; followups come after its answer."""
        return self.messages[-1].content

    def reference_of(self, turn: int) -> str | None:
        """The reference of a turn, counted from 1; None where there is none."""
        if turn == 1:
            return self.reference
        return self.references[turn - 1] if turn <= len(self.references) else None


class Label(msgspec.Struct, frozen=True):
    """One answer of a closed question, with the spellings whose probabilities are summed."""

    name: str
    spellings: tuple[str, ...]


def labels(*names: str) -> tuple[Label, ...]:
    """Labels that have one spelling each: their name."""
    return tuple(Label(name, (name,)) for name in names)


class Prefix(msgspec.Struct, frozen=True):
    """The part of the assistant's turn that is already written, as text and as token ids.

    Empty `token_ids` with a non-empty text mean: the server tokenises the text itself.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()


NO_PREFIX: Final = Prefix()


UNKNOWN_ID: Final = -1
"""Stands for an alternative's id where the server names it by its text only, or lists none."""


class TopLogprobs(msgspec.Struct, frozen=True, gc=False):
    """The k most likely tokens at each of T positions: two arrays of shape (T, k).

    Ids below `UNKNOWN_ID` stand for texts, where the server gives no ids: -2 - n for the n-th of
    `Generation.names`, and in what a store holds the number that the run gave to the text.
    """

    token_ids: IntArray
    logprobs: FloatArray


DONE, FAILED, FAILED_FOR_NOW, FAULTY = 0, 1, 2, 3
"""Ends of a unit: with rows; failed for good; failed for now, to be asked again; method raised."""

GIVEN: Final = "given"
"""End of a text whose making nobody saw."""


class Generation(msgspec.Struct, frozen=True, gc=False):
    """A drawn text.

    Attributes:
        text: The answer without its end-of-turn token.
        finish_reason: "stop", "length", or what else the server said; `GIVEN` for a text that
            existed already, of which neither tokens nor log-probabilities are known.
        n_prompt_tokens: As the server counted them.
        n_completion_tokens: As the server counted them, stop token included where it counts it.
        token_ids: int32, shape (T,), without the stop token; None where the server gives no ids.
        logprobs: float32, shape (T,), natural log, raw (temperature 1) where `raw` is true;
            aligned with `token_ids`; None where not observed.
        top: Where observed.
        raw: Whether the log-probabilities are those of the unmodified softmax.
        n_cached_tokens: Prompt tokens the server took from its prefix cache (0 if it does not say).
        observed: "draw" where log-probabilities came with the draw, "score" where they were read
            off the stored tokens afterwards (prefill and decode differ a little on most servers).
        offsets: int32, shape (T,): the place in `text` at which each token begins; None where not
            asked for, or where the tokens do not spell the text.
        thinking: What a reasoning model wrote before its answer; no part of `text`, and neither its
            ids nor its log-probabilities are among those here.
        n_thinking_tokens: Its tokens, what ends it included; None where there is no thinking, or
            nobody counted it.
        named: int32, shape (T,): the drawn tokens by their texts, as alternatives are (see
            `TopLogprobs`); only where there are neither ids nor offsets.
        names: The distinct texts of tokens that the server names by their texts alone, in bytes;
            empty in what a store holds, which keeps each text once.
    """

    text: str
    finish_reason: str
    n_prompt_tokens: int = 0
    n_completion_tokens: int = 0
    token_ids: IntArray | None = None
    logprobs: FloatArray | None = None
    top: TopLogprobs | None = None
    raw: bool = True
    n_cached_tokens: int = 0
    observed: str = "draw"
    offsets: IntArray | None = None
    thinking: str = ""
    n_thinking_tokens: int | None = None
    named: IntArray | None = None
    names: tuple[bytes, ...] = ()

    @property
    def mean_logprob(self) -> float:
        """Mean natural-log probability of the tokens; nan for no tokens or not observed."""
        return _mean(self.logprobs)


def _mean(logprobs: FloatArray | None) -> float:
    if logprobs is None or not logprobs.size:
        return float("nan")
    return float(logprobs.mean(dtype=np.float64))


TOKEN_FEATURES: Final = (
    "entropy", "vocab_logprob_var", "vocab_mean_logp_logit", "compat_logprob",
    "compat_vocab_logprob_var", "compat_vocab_mean_logp_logit",
)  # fmt: skip
"""Features with one number a scored token; see `Scored`."""

FEATURES: Final = frozenset({*TOKEN_FEATURES, "attention_entropy"})
"""Features of a scoring pass beyond log-probabilities; see `Scored`."""


def unknown_features(names: Iterable[str]) -> list[str]:
    """Those of `names` that are no features, in order."""
    return sorted(set(names) - FEATURES)


class Scored(msgspec.Struct, frozen=True, gc=False):
    """Teacher-forced log-probabilities of given tokens after a prompt.

    `features` holds what was asked for of the names below. V is the width of the logits, natural
    logarithms throughout, temperature 1; float32 of shape (T,) unless said otherwise.

    * "entropy": -sum_v p ln p of the distribution that predicts each scored token, nats.
    * "vocab_logprob_var": variance over the vocabulary of ln p there, ddof=1.
    * "vocab_mean_logp_logit": mean over the vocabulary of ln p times the raw logit there.
    * "compat" columns: these three as SelfEval's code has them, one place later: after each scored
      token. "compat_logprob" is that of the next scored token, and after the last one that of the
      sequence's very first token, where the code's `torch.roll` wraps around. For the code's own
      numbers, score with `end_of_turn`, and take means.
    * "attention_entropy": shape (layers, heads): -(1/I) sum_i sum_j a_ji ln a_ji over the I tokens
      of the prompt and the T scored ones, a_ji being what j pays to i.

    Attributes:
        token_ids: int32, shape (T,).
        logprobs: float32, shape (T,), natural log, raw.
        n_prompt_tokens: Tokens before the first scored one.
        boundary: "separate", "joint" or "merged" (how prompt and text were tokenised).
        method: Server call that gave the numbers.
        top: The most likely tokens at each position, where asked for.
        features: By name, those asked for; None where none were.
    """

    token_ids: IntArray
    logprobs: FloatArray
    n_prompt_tokens: int = 0
    boundary: str = "separate"
    method: str = ""
    n_cached_tokens: int = 0
    top: TopLogprobs | None = None
    features: dict[str, FloatArray] | None = None

    @property
    def mean_logprob(self) -> float:
        """Mean natural-log probability of the tokens; nan for no tokens."""
        return _mean(self.logprobs)


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The probability of each label as the next text.

    Attributes:
        logprobs: ln p(label | prompt) over the whole vocabulary, spellings summed, in the order
            the labels were asked; nan where the server could not give it; -inf is a true zero.
        upper: Upper bounds of ln p for the same labels (equal to `logprobs` where these are exact).
        method: Server call that gave the numbers, e.g. "embedded.choose", "top_logprobs".
        n_prompt_tokens: Prompt tokens.
        n_cached_tokens: Prompt tokens the server took from its prefix cache (0 if it does not say).
        n_requests: HTTP requests this took.
    """

    logprobs: tuple[float, ...]
    upper: tuple[float, ...]
    method: str
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_requests: int = 1

    @property
    def exact(self) -> bool:
        """True if every label's probability is known, not only bounded."""
        return all(value == value for value in self.logprobs)


class PairScores(msgspec.Struct, frozen=True, gc=False):
    """Similarity of N texts, by every ordered pair.

    Attributes:
        precision: float32, shape (N, N): in row h, column r how much of text h is found in text r,
            in [-1, 1]; 0 for texts without a token, nan where it is undefined. 1 on the diagonal
            of a text that has tokens.
        recall: Shape (N, N): how much of text r is found in text h.
        encoder: What compared them.
        layer: Of the encoder; 0 where it has none.
        n_truncated: Texts that were longer than the encoder reads.
    """

    precision: FloatArray
    recall: FloatArray
    encoder: str
    layer: int
    n_truncated: int = 0


class Rewards(msgspec.Struct, frozen=True, gc=False):
    """The rating of a conversation that ends with an answer, by a reward model.

    Attributes:
        values: float32, shape (P, K), raw, without an activation: K outputs at each of P places of
            the conversation. A model that rates the whole conversation has one place.
        by_place: True if the model rates places (tokens, or the ends of steps), not the whole.
        method: Server call that gave the numbers.
        n_prompt_tokens: Tokens of the conversation.
        n_cached_tokens: Those the server took from its prefix cache (0 if it does not say).
    """

    values: FloatArray
    by_place: bool = False
    method: str = ""
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0


Outcome = Generation | Scored | Choice | PairScores | Rewards


UNREACHED: Final = frozenset(("refused", "unreachable"))
"""Causes of failures that say nothing about the request: no server took it, or the one that had it
has gone."""


REQUEST, ACCOUNT, SERVER, UNCLEAR = "request", "account", "server", "unclear"
"""Whose state a failure tells of; see `Failure.scope`."""


class Failure(msgspec.Struct, frozen=True):
    """The reason for the absence of an outcome.

    Attributes:
        cause: One word for grouping: "refused", "unreachable", "timeout", "connection",
            "rate_limited", "server_error", "dead_server", "too_long", "moderation", "bad_request",
            "unauthorised", "no_credit", "not_found", "redirected", "unparseable", "unsupported",
            "no_logprobs", "no_answer", "budget", "method".
        message: What the server or the transport said, shortened, without secrets.
        permanent: Whether the same request would meet it again; only such are stored as outcomes.
            One that is `UNCLEAR` is, once others were answered.
        status: HTTP status, 0 where there was none.
        retry_after_s: What the server asked us to wait, where it did.
        scope: Whose state it is: `REQUEST` of this request, or of the moment in which it was sent;
            `ACCOUNT` or `SERVER` of what all requests of the model share, so that each would meet
            it until somebody acts; `UNCLEAR` either, which shows by whether others are answered.
        n_prompt_tokens: Tokens that were read for a reply without an answer, as the server counted
            them; 0 where there was no reply, or it does not say.
        n_completion_tokens: Tokens that were generated for it.
    """

    cause: str
    message: str
    permanent: bool = False
    status: int = 0
    retry_after_s: float | None = None
    scope: str = REQUEST
    n_prompt_tokens: int = 0
    n_completion_tokens: int = 0

    @property
    def retriable(self) -> bool:
        """True if the same request may be answered when it is sent again in this call."""
        return not self.permanent and self.scope == REQUEST


def unsupported(said: str) -> Failure:
    """Return the failure of what a server, or this program, can't do, however often it is asked."""
    return Failure("unsupported", said, permanent=True)


def unparseable(said: str) -> Failure:
    """Return the failure of a reply that can't be read, or that contradicts itself."""
    return Failure("unparseable", said, permanent=True)


class Standing(msgspec.Struct, frozen=True):
    """One model in a ranking that forms.

    Attributes:
        model: Its name.
        rating: Elo scale, mean 1000; None where the model can't be placed.
        half_width: Of its interval over prompts; None while there is none.
        n_prompts: Prompts on which it was compared.
    """

    model: str
    rating: float | None
    half_width: float | None
    n_prompts: int


class Unit(msgspec.Struct, frozen=True):
    """The unit of evaluation: an item, the models compared, and the judge."""

    item: Item
    models: tuple[str, ...]
    judge: str = ""


Row = dict[str, Any]
