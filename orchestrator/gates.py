"""Requirements of a run, such as `score(large) >= score(large, old) - 0.02`, and verdicts on them.

The grammar, which is read by hand:

    requirement = side (">" | ">=" | "<" | "<=") side
    side        = number | term {("+" | "-") number}
    term        = name | measure "(" [argument {"," argument}] ")"
    argument    = name | option "=" name

A name is a word, or a text in quotes: words end at white space, brackets, commas, quotes and the
signs of comparison. A bare name is the rating of that model.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import ge, gt, le, lt
from typing import Final, Literal, NoReturn

import msgspec

from orchestrator.errors import nearest

Operator = Literal[">", ">=", "<", "<="]
Role = Literal["model", "judge"]
Which = Literal["new", "old"]
Form = Literal["rating", "percent", "number", "signed"]

MOST: Final = 1000
"""Characters of a requirement."""

_SIGNS: Final[dict[str, Operator]] = {
    ">": ">",
    ">=": ">=",
    "<": "<",
    "<=": "<=",
    "≥": ">=",
    "≤": "<=",
}
_COMPARED: Final[dict[str, Callable[[float, float], bool]]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_FLIPPED: Final[dict[str, Operator]] = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_TOKEN: Final = re.compile(
    r"""(?P<quoted>"[^"]*"|'[^']*')|(?P<open>["'])|(?P<compare>[<>]=?|[≥≤])|(?P<mark>[()=,])"""
    r"""|(?P<word>[^\s()<>=,"'≥≤]+)"""
)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?%?$")
_OPTIONS: Final = ("method", "judge", "run")
_RUNS: Final[dict[str, Which]] = {"new": "new", "old": "old"}
_VALUES: Final = ("name", "number")


class UnreadableError(ValueError):
    """A requirement that cannot be read.

    Args:
        message: What is wrong.
        text: The requirement.
        column: Where, from 1 on.
    """

    def __init__(self, message: str, text: str, column: int) -> None:
        self.message = message
        self.text = text
        self.column = column
        # The requirement stands below, with a mark under the place.
        super().__init__(f"column {column}: {message}\n{text}\n{'-' * (column - 1)}^")


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that requirements can name.

    Attributes:
        roles: Of its arguments.
        n_least: Tokens that must be given.
        options: Options that it takes.
        form: How its values are written, as of columns of tables.
        says: Its meaning in a few words.
    """

    roles: tuple[Role, ...]
    n_least: int
    options: tuple[str, ...]
    form: Form
    says: str


_OF_JUDGES: Final = ("method", "run")
MEASURES: Final[Mapping[str, Measure]] = {
    "rating": Measure(("model",), 1, _OPTIONS, "rating", "rating by pairwise judgments"),
    "win_rate": Measure(
        ("model", "model"), 1, _OPTIONS, "percent",
        "share of comparisons won against another model, or against all; ties count half",
    ),
    "score": Measure(("model",), 1, _OPTIONS, "number", "mean score"),
    "exact_match": Measure(
        ("model",), 1, ("run",), "percent", "share of answers equal to the reference"
    ),
    "coverage": Measure(("judge",), 1, _OF_JUDGES, "percent", "mean probability on the labels"),
    "flips": Measure(
        ("judge",), 1, _OF_JUDGES, "percent",
        "share of decided pairs whose winner changes with the order of the answers",
    ),
    "agreement": Measure(("judge", "judge"), 2, _OF_JUDGES, "percent", "share of equal verdicts"),
    "kappa": Measure(("judge", "judge"), 2, _OF_JUDGES, "number", "Cohen's kappa"),
    "risk": Measure(
        ("judge",), 1, _OF_JUDGES, "percent",
        "error rate of the verdicts that are kept, by the labels of the analysis selective",
    ),
    "missing": Measure(("judge",), 1, _OF_JUDGES, "percent", "share of judgments without a result"),
    "failed": Measure((), 0, ("run",), "percent", "share of units that failed"),
}  # fmt: skip
"""The measures by name."""


@dataclass(frozen=True, slots=True)
class Token:
    """A name, a number or a sign in a requirement.

    Attributes:
        kind: Of the token; "end" behind the last.
        text: As it is written, a name without quotes.
        column: Where it begins, from 1 on.
    """

    kind: Literal["name", "number", "sign", "compare", "mark", "end"] = field(compare=False)
    text: str
    column: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Term:
    """A measure of some models or judges.

    Attributes:
        measure: Name of the measure.
        names: Its arguments.
        options: Names of a method and a judge, by "method" and "judge".
        run: Which run it is about.
        column: Where it begins, from 1 on.
    """

    measure: str
    names: tuple[Token, ...]
    options: Mapping[str, Token]
    run: Which
    column: int = field(compare=False)

    def option(self, name: str) -> str:
        """Return the value of an option; empty if it is not given."""
        found = self.options.get(name)
        return "" if found is None else found.text


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement: `left` minus `right` compared with `threshold`.

    Attributes:
        text: As it was written.
        left: The first term.
        right: The term that it is compared with; None for a number.
        operator: Of the comparison.
        threshold: The number, or the margin between the terms.
    """

    text: str
    left: Term
    right: Term | None
    operator: Operator
    threshold: float

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that there are."""
        return (self.left,) if self.right is None else (self.left, self.right)

    @property
    def measure(self) -> Measure:
        """The measure of its terms."""
        return MEASURES[self.left.measure]

    def is_met_by(self, value: float) -> bool:
        """Return True if a known value of the difference meets it."""
        return _COMPARED[self.operator](value, self.threshold)


def read(text: str) -> Requirement:
    """Return a requirement.

    Args:
        text: Such as "large > medium" or "win_rate(large, baseline) > 0.5".

    Raises:
        UnreadableError: If it is none, with the column at which it stops making sense.
    """
    if len(text) > MOST:
        raise UnreadableError(f"a requirement has at most {MOST} characters", text[:MOST], MOST)
    if not text.isprintable():
        at = next(place for place, one in enumerate(text) if not one.isprintable())
        shown = "".join(one if one.isprintable() else "?" for one in text)
        raise UnreadableError("unexpected control character", shown, at + 1)
    return _Reader(text).requirement()


class _Reader:
    """Reads the tokens of one requirement from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

    def requirement(self) -> Requirement:
        left, left_number = self._side()
        found = self._next()
        if found.kind != "compare":
            self._expected("a comparison: >, >=, < or <=", found)
        operator = _SIGNS[found.text]
        right, right_number = self._side()
        rest = self._next()
        if rest.kind == "compare":
            self._fail("write one comparison in each requirement", rest)
        if rest.kind != "end":
            self._expected("the end of the requirement", rest)
        threshold = right_number - left_number
        if left is None:
            if right is None:
                self._fail(f"nothing to measure; measures: {', '.join(MEASURES)}", self._tokens[0])
            return Requirement(self._text, right, None, _FLIPPED[operator], -threshold)
        if right is not None:
            message = ""
            if left.measure != right.measure:
                message = f"{left.measure} and {right.measure} can't be compared with each other"
            elif left.measure in ("kappa", "risk", "missing", "failed"):
                message = f"{left.measure} can only be compared with a number"
            elif left == right:
                message = "both sides are the same; name another model, judge or run"
            if message:
                raise UnreadableError(message, self._text, right.column)
        return Requirement(self._text, left, right, operator, threshold)

    def _side(self) -> tuple[Term | None, float]:
        """A term, if there is one, and the sum of the numbers beside it."""
        first = self._peek()
        term = None
        number = 0.0
        if first.kind == "number":
            number = self._number()
        elif first.kind == "name":
            term = self._term()
        else:
            self._expected("a model, a measure or a number", first)
        while self._peek().kind == "sign":
            sign = -1.0 if self._next().text == "-" else 1.0
            number += sign * self._number()
        return term, number

    def _number(self) -> float:
        found = self._next()
        if found.kind != "number":
            self._expected("a number", found)
        text = found.text
        value = float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
        if not math.isfinite(value):
            self._fail(f"{text} is too large", found)
        return value

    def _term(self) -> Term:
        name = self._next()
        if not self._takes("("):
            return Term("rating", (name,), {}, "new", name.column)
        if name.text not in MEASURES:
            hint = nearest(name.text, MEASURES, "measures")
            self._fail(f"unknown measure {name.text!r}{hint}", name)
        measure = MEASURES[name.text]
        names, options, run = self._arguments(name.text, measure)
        if len(names) < measure.n_least:
            end = self._tokens[self._at - 1]
            wanted = measure.roles[len(names)]
            self._fail(f"{name.text} needs the name of a {wanted}", end)
        return Term(name.text, tuple(names), options, run, name.column)

    def _arguments(
        self, name: str, measure: Measure
    ) -> tuple[list[Token], dict[str, Token], Which]:
        names: list[Token] = []
        options: dict[str, Token] = {}
        run: Which = "new"
        if self._takes(")"):
            return names, options, run
        while True:
            found = self._next()
            if found.kind not in _VALUES:
                self._expected("a name", found)
            quoted = self._text[found.column - 1] in "\"'"
            if self._takes("="):
                self._check(name, measure, found, options)
                given = self._next()
                if given.kind not in _VALUES:
                    self._expected(f"a name for {found.text}", given)
                if found.text == "run":
                    run = self._run(given)
                else:
                    options[found.text] = given
            elif not quoted and found.text in _RUNS and len(names) >= measure.n_least:
                run = self._run(found)
            elif len(names) == len(measure.roles):
                takes = "no names" if not measure.roles else f"at most {len(measure.roles)}"
                self._fail(f"{name} takes {takes}; options are written method=NAME", found)
            else:
                names.append(found)
            if self._takes(")"):
                return names, options, run
            if not self._takes(","):
                self._expected("',' or ')'", self._peek())

    def _check(
        self, name: str, measure: Measure, found: Token, options: Mapping[str, Token]
    ) -> None:
        if found.text not in measure.options:
            near = nearest(found.text, measure.options, "")
            *others, last = measure.options
            takes = f"{', '.join(others)} and {last}" if others else last
            hint = near or f"; it takes {takes}"
            self._fail(f"{name} has no option {found.text!r}{hint}", found)
        if found.text in options:
            self._fail(f"{found.text!r} is given twice", found)

    def _run(self, found: Token) -> Which:
        if found.text not in _RUNS:
            self._fail(f"unknown run {found.text!r}; there are new and old", found)
        return _RUNS[found.text]

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _takes(self, mark: str) -> bool:
        """Step over a bracket, comma or equals sign, and return whether it was there."""
        is_there = (self._peek().kind, self._peek().text) == ("mark", mark)
        if is_there:
            self._next()
        return is_there

    def _next(self) -> Token:
        found = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return found

    def _expected(self, what: str, found: Token) -> NoReturn:
        got = "the requirement ends here" if found.kind == "end" else f"got {found.text!r}"
        if found.kind == "mark" and found.text == "=":
            got = "got '='; that two numbers are equal can't be shown"
        self._fail(f"expected {what}; {got}", found)

    def _fail(self, message: str, found: Token) -> NoReturn:
        raise UnreadableError(message, self._text, found.column)


def _tokens(text: str) -> list[Token]:
    """The tokens, with one for the end.

    Raises:
        UnreadableError: If a quote is not closed.
    """
    found: list[Token] = []
    for one in _TOKEN.finditer(text):
        kind, said, column = str(one.lastgroup), one[0], one.start() + 1
        if kind == "open":
            raise UnreadableError(f"the quote {said[0]} is not closed", text, column)
        if kind == "quoted":
            if len(said) == 2:
                raise UnreadableError("a name in quotes is empty", text, column)
            found.append(Token("name", said[1:-1], column))
        elif kind == "compare":
            found.append(Token("compare", said, column))
        elif kind == "mark":
            found.append(Token("mark", said, column))
        elif said in ("+", "-"):
            found.append(Token("sign", said, column))
        elif not _NUMBER.match(said):
            found.append(Token("name", said, column))
        elif said[0] in "+-" and found and (found[-1].kind in _VALUES or found[-1].text == ")"):
            found += [Token("sign", said[0], column), Token("number", said[1:], column + 1)]
        else:
            found.append(Token("number", said, column))
    return [*found, Token("end", "", len(text) + 1)]


Verdict = Literal["holds", "fails", "not known yet"]


class Checked(msgspec.Struct, frozen=True):
    """A requirement and the verdict on it.

    Attributes:
        requirement: As it was written.
        verdict: On the requirement.
        value: Of the measure, or of the difference of the two; None where undefined.
        low: Lower bound; None without an interval, -inf where the data do not bound it.
        high: Upper bound likewise.
        threshold: Number that the value is compared with.
        operator: Comparison with the threshold.
        form: How the numbers are written, as of columns of tables.
        n: Items that it rests on; None for counts, which are exact.
        n_clusters: Clusters of these items; None where each stands alone.
        why: Why it is not known yet, or what else to know; empty for nothing.
        method: Of the interval.
        is_difference: True if the value is a difference of two terms.
    """

    requirement: str
    verdict: Verdict
    value: float | None
    low: float | None
    high: float | None
    threshold: float
    operator: str
    form: Form
    n: int | None = None
    n_clusters: int | None = None
    why: str = ""
    method: str = ""
    is_difference: bool = False
