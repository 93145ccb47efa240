"""Effort of a fuzz test, and its inputs."""

import json
import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

Check = Callable[..., None]


_LONG: Final = (pytest.mark.slow, pytest.mark.long)


def fuzz(few: int, **strategies: st.SearchStrategy[Any]) -> Callable[[Check], Check]:
    """A test of `few` fixed examples, and a long one of ten times as many.

    They are the same on each machine, so that a change is never blamed for a fault that was there
    before it; with FUZZ=random in the environment the long ones are new each time.
    """

    def decorate(check: Check) -> Check:
        @pytest.mark.parametrize(
            "long", [False, pytest.param(True, marks=_LONG)], ids=["few", "many"]
        )
        def test(long: bool) -> None:  # noqa: FBT001 (a parameter of a test)
            chosen = settings(
                max_examples=few * 10 if long else few,
                derandomize=not (long and os.environ.get("FUZZ") == "random"),
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink),
            )
            chosen(given(**strategies)(check))()

        test.__name__ = test.__qualname__ = check.__name__
        test.__doc__ = check.__doc__
        return test

    return decorate


SURROGATE = "\ud800"
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "\x9b31m",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a\x00b",
    "\u202egnp.exe\u2066",
    SURROGATE,
    "x\udfff\U0010ffff",
    '=HYPERLINK("http://x","y")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "a\r\n=1",
    "| a | b |\n|---|---|",
    "[click](javascript:alert(1))",
    "{{ 7*7 }}{% for x in y %}",
    "[bold red]markup[/]",
    "\u0301" * 50,
    "",
)
"""Texts that a program which shows them may obey."""

TEXTS = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=12)
NUMBERS = st.sampled_from([
    0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 2**64 - 1, -(2**63) - 1,
    10**30, 10**400, -(10**400), 0.5, -0.0, -1e-300, 1e300, -1e300, -9999.0, -3.4028235e38, 3.5e38,
    float("nan"), float("inf"), float("-inf"), 5.0,
])  # fmt: skip


NAMES = st.sampled_from(["7", "-7", "7.5", "²", "9" * 30, "token_id:7", "token_id:9999999999"])


def nested(depth: int, *, lists: bool) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = [made] if lists else {"a": made}
    return made


JUNK: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | NUMBERS
    | TEXTS
    # Copied, since what is drawn may be changed again.
    | st.sampled_from([[], {}, [[]], [None], [[None]], {"": None}, [{}], ["token_id:7"]]).map(
        deepcopy
    )
    | st.booleans().map(lambda lists: nested(40, lists=lists))
    | st.lists(NUMBERS | TEXTS, max_size=3)
    | st.dictionaries(TEXTS | NAMES, NUMBERS, max_size=3)
)
"""JSON values of every wrong kind; `json.dumps` writes NaN and lone surrogates too."""


def change(draw: st.DrawFn, body: Any, junk: st.SearchStrategy[Any] = JUNK) -> Any:
    """One place of a value changed: another value, gone, twice, or under another name."""
    place, steps = body, _steps(body)
    if not steps:
        return draw(junk)
    while True:
        step = draw(st.sampled_from(_steps(place)))
        inner = place[step]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 3)) == 0:
            break
        place = inner
    act = draw(st.sampled_from(["replace", "replace", "replace", "drop", "repeat", "rename"]))
    if act == "drop":
        del place[step]
    elif act == "repeat" and isinstance(place, list):
        place.insert(step, deepcopy(inner))
    elif act == "rename" and isinstance(place, dict):
        place[draw(TEXTS | NAMES)] = place.pop(step)
    else:
        place[step] = draw(junk)
    return body


def _steps(place: Any) -> list[Any]:
    return (
        list(place)
        if isinstance(place, dict)
        else list(range(len(place)))
        if isinstance(place, list)
        else []
    )


@st.composite
def changed_json(draw: st.DrawFn, bodies: tuple[bytes, ...]) -> bytes:
    """One of several JSON texts with up to three places changed."""
    body = json.loads(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        body = change(draw, body)
    return json.dumps(body).encode("utf-8", "surrogatepass")


@st.composite
def cut_bytes(draw: st.DrawFn, bodies: tuple[bytes, ...]) -> bytes:
    """One of several texts, cut short or with bytes put in or taken out."""
    body = draw(st.sampled_from(bodies))
    start = draw(st.integers(0, len(body)))
    if draw(st.booleans()):
        return body[:start]
    end = draw(st.integers(start, min(len(body), start + 60)))
    return body[:start] + draw(st.binary(max_size=8)) + body[end:]


def replies(bodies: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Replies that went wrong in any way."""
    return changed_json(bodies) | changed_json(bodies) | cut_bytes(bodies) | st.binary(max_size=60)
