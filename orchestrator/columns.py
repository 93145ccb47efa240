"""Columns of frames as methods declare them: types and roles."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from orchestrator.records import Row

ITEMS: Final = "items"
"""The frame of what the dataset holds; the others are of methods."""

COLUMN_TYPES: Final = ("str", "f64", "i64", "bool", "list[f64]", "list[str]")
"""Types of columns."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


# What people call the columns of scores, where that is not their name with spaces, and parts of it.
_SCORES: Final = {
    "prefer_a": "P(A better)",
    "p_true": "P(True)",
    "self_certainty_low": "self-certainty (lower bound)",
    "combo_of_model": "combo within a model",
}
_PARTS: Final = {
    "logprob": "log-prob", "logprobs": "log-probs", "logp": "log-prob", "prob": "probability",
    "var": "variance", "avg": "mean", "exp": "expectation", "min": "minimum", "vocab": "vocabulary",
    "low": "(lower bound)", "high": "(upper bound)",
}  # fmt: skip


def score_words(name: str) -> str:
    """Return a score in words: that of a column, or of `METHOD.COLUMN`."""
    method, _, column = name.rpartition(".")
    said = _SCORES.get(column) or " ".join(_PARTS.get(part, part) for part in column.split("_"))
    return f"{method}: {said}" if method else said


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a frame, which is part of the names of files."""
    return _NAME.fullmatch(name) is not None


def schema_fault(schemas: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return what is wrong with the frames of methods; None if nothing is.

    Args:
        schemas: Columns by frame, as methods declare them or a store holds them.
    """
    for name, columns in schemas.items():
        if not is_name(name) or name == ITEMS:
            return f"{name!r:.80} can't be the name of a frame"
        unknown = [kind for kind in columns.values() if kind not in COLUMN_TYPES]
        if unknown:
            return f"a column of the frame {name!r} has no known type: {unknown[0]!r:.80}"
    return None


def pack_row(columns: Mapping[str, str], row: Row) -> tuple[object, ...]:
    """The values of a row in the order of the schema; what a failed row lacks is None."""
    return tuple(map(row.get, columns))


# Roles of a frame's columns: which compare two models, which rate an answer, which are answers.
#
# Methods declare them, and a run keeps them beside the columns of its frames: rankings and figures
# are made by role, also where the code of a method is not there.


ESTIMATORS: Final = (
    "mode_pre", "mode_post", "median_pre", "median_post", "mean_pre", "mean_post",
)  # fmt: skip
"""Preferences in [-1, 1] by a statistic of the verdicts, before or after averaging orders."""

_NUMBERS: Final = frozenset({"f64", "i64", "bool"})
_ROLES: Final = ("pairs", "distribution", "rewriting", "answers")
# Of roles that are no numbers.
_TYPES: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("model", "model_a", "model_b", "judge", "answer"), frozenset({"str"})),
    **dict.fromkeys(("rewriting", "text", "winner_ab", "winner_ba"), frozenset({"str"})),
    **dict.fromkeys(("p", "p_ab", "p_ba", "traces"), frozenset({"list[f64]"})),
    **dict.fromkeys(("exact", "same_text", "unchanged", "exact_match"), frozenset({"bool"})),
    "parsed": frozenset({"bool"}),
    "turn": frozenset({"i64"}),
}


class _Named(msgspec.Struct, frozen=True):
    def columns(self) -> dict[str, str]:
        """Return the columns that there are, by the name that reports know them by."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        texts = {name: one for name, one in named.items() if one and isinstance(one, str)}
        return {name: column for name, column in texts.items() if name != "title"}


class PairColumns(_Named, frozen=True):
    """Columns of rows that compare two models on an item; empty for what the rows do not have.

    They give rankings, also while the run goes on, and figures of the judges.

    Attributes:
        model_a: Name of the first model.
        model_b: Name of the second one.
        judge: Who compares them.
        turn: Of the conversation, from 1 on.
        preference: P(A is better), a tie as half, in [0, 1].
        preference_ab: The preference with A's answer shown first.
        preference_ba: The preference with B's answer shown first.
        p_ab: Distribution over verdicts, from A much better to B much better, A shown first.
        p_ba: The same with B shown first.
        coverage_ab: Probability that was on the verdicts, A shown first.
        coverage_ba: The same with B shown first.
        winner_ab: "A", "B" or "tie" as the judge's text says, A shown first.
        winner_ba: The same with B shown first, A and B as in `model_a` and `model_b`.
        parsed: Whether the judge's text had a verdict, where rows without one may count.
        score_a: Score of A's answer, higher for a better one, mean of both orders.
        score_b: Score of B's.
        traces: Numbers of traces that found A better, neither, and B better, of both orders.
        exact: Whether every verdict's probability is known.
        same_text: Whether both answers are equal.
        estimators: Those of `ESTIMATORS` that the rows have, as columns of these names.
        verdicts: Whether the distributions are over verdicts that the judge was asked for, which
            are shown; False where they are made of others, e.g. of two scores.
        ranked: Whether reports rank the models by them, and analyses of judges take them; False
            where the method's own summary rates the models.
    """

    model_a: str = "model_a"
    model_b: str = "model_b"
    judge: str = ""
    turn: str = ""
    preference: str = "prefer_a"
    preference_ab: str = ""
    preference_ba: str = ""
    p_ab: str = ""
    p_ba: str = ""
    coverage_ab: str = ""
    coverage_ba: str = ""
    winner_ab: str = ""
    winner_ba: str = ""
    parsed: str = ""
    exact: str = ""
    same_text: str = ""
    score_a: str = ""
    score_b: str = ""
    traces: str = ""
    estimators: tuple[str, ...] = ()
    verdicts: bool = True
    ranked: bool = True

    def columns(self) -> dict[str, str]:
        """Return the columns that there are, by the name that reports know them by."""
        named = {
            name.replace("preference", "prefer_a"): one for name, one in super().columns().items()
        }
        return named | {name: name for name in self.estimators}


class ScoreColumns(_Named, frozen=True):
    """Columns of rows with a judge's distribution over scores; empty for what they do not have.

    Attributes:
        p: Probability of each score, ascending. The lowest one is that of `Method.compared`, or 1.
        mean: Of the distribution.
        std: Its standard deviation.
        coverage: Probability that was on the scores.
        model: Whose answer is rated.
        judge: Who rates it.
        turn: Of the conversation, from 1 on.
    """

    p: str = "p"
    mean: str = ""
    std: str = ""
    coverage: str = ""
    model: str = "model"
    judge: str = ""
    turn: str = ""


class RewriteColumns(_Named, frozen=True):
    """Columns of rows in which a model rewrites its answer.

    Attributes:
        title: The method's name in headings.
        answer: Text of the answer.
        rewriting: Text of the rewriting.
        before: Mean log-probability of the answer, nats a token.
        after: That of the rewriting.
        change: `after` minus `before`.
        unchanged: Whether both texts are equal.
        model: Whose answer it is.
        turn: Of the conversation, from 1 on.
    """

    title: str
    answer: str
    rewriting: str
    before: str
    after: str
    change: str
    unchanged: str
    model: str = "model"
    turn: str = "turn"


class AnswerColumns(_Named, frozen=True):
    """Columns of rows that are answers, which other rows are about; empty for what they lack.

    Attributes:
        text: The answer.
        exact_match: Whether it equals the reference; null where there is none.
        model: Who answered.
        turn: Of the conversation, from 1 on.
    """

    text: str = "text"
    exact_match: str = ""
    model: str = "model"
    turn: str = ""


class RowRoles(msgspec.Struct, frozen=True):
    """Roles of the columns of one frame.

    Attributes:
        pairs: Where its rows compare two models.
        distribution: Where they hold a distribution over scores.
        rewriting: Where a model rewrites its answer in them.
        answers: Where they are answers.
        lowest: The lowest score of each method, by its name.
    """

    pairs: PairColumns | None = None
    distribution: ScoreColumns | None = None
    rewriting: RewriteColumns | None = None
    answers: AnswerColumns | None = None
    lowest: Mapping[str, int] = {}

    def differing(self, other: "RowRoles") -> list[str]:
        """Return the names of the roles that another frame's columns do not have alike."""
        return [name for name in _ROLES if getattr(self, name) != getattr(other, name)]

    def fault(self, schema: Mapping[str, str]) -> str:
        """Return what is wrong with the roles of a frame; empty for nothing.

        Args:
            schema: Type of each column.
        """
        for name in _ROLES:
            role = getattr(self, name)
            for what, column in {} if role is None else role.columns().items():
                if column not in schema:
                    return f"'{name}' names {column!r:.80}, which is no column"
                types = _TYPES.get(what, _NUMBERS)
                if schema[column] not in types:
                    said = f"a column of {schema[column]}, not {' or '.join(sorted(types))}"
                    return f"'{name}' names {column!r:.80}, {said}"
        unknown = set(self.pairs.estimators if self.pairs else ()) - set(ESTIMATORS)
        if unknown:
            return f"'pairs' names the estimator {min(unknown)!r:.80}; there are {ESTIMATORS}"
        return ""


def decoded(text: str, schemas: Mapping[str, Mapping[str, str]]) -> dict[str, RowRoles]:
    """Return the roles of each frame of a run, from the JSON that it keeps.

    Args:
        text: The JSON.
        schemas: Columns by frame.

    Raises:
        ValueError: If it is no such JSON, or does not fit the columns.
    """
    try:
        found = msgspec.json.decode(text, type=dict[str, RowRoles])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    for frame, role in found.items():
        fault = role.fault(schemas.get(frame, {}))
        if fault:
            raise ValueError(f"{frame!r:.80}: its {fault}")
    return found
