"""What an operation of a template makes is no larger than what it was said to cost before."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment

from orchestrator.prompts.costs import OF_FILTERS, OF_OPERATORS, by_braces, joined, size_of

TEXTS = st.text("a1 %-<!>\t\n{}é", max_size=99) | st.just("a" * 99)
WIDTHS = st.integers(0, 60)
LISTS = st.lists(TEXTS, max_size=8)
NESTED = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
# Of each filter, the value that it changes, and its arguments.
CALLS = {
    "replace": (TEXTS, st.tuples(st.text("a1 ", max_size=2), TEXTS)),
    "center": (TEXTS, st.tuples(WIDTHS)),
    "indent": (TEXTS, st.tuples(WIDTHS | TEXTS, st.booleans(), st.booleans())),
    "wordwrap": (TEXTS, st.tuples(st.integers(1, 9), st.booleans(), TEXTS)),
    "batch": (LISTS, st.tuples(st.integers(1, 99), TEXTS)),
    "slice": (LISTS, st.tuples(st.integers(1, 99), TEXTS)),
    "format": (st.sampled_from(["%s%s", "%9s|%s", "%-99s%%%s"]), st.tuples(TEXTS, TEXTS)),
    "round": (st.floats(-1e9, 1e9), st.tuples(st.integers(-9, 99))),
    "striptags": (TEXTS, st.just(())),
    "tojson": (NESTED, st.tuples(st.none() | st.integers(0, 99))),
}


@pytest.mark.parametrize("name", OF_FILTERS)
@given(st.data())
def test_no_filter_makes_more_than_it_costs(name, data):
    value, arguments = (data.draw(one) for one in CALLS[name])
    made = Environment(autoescape=False).call_filter(name, value, arguments)  # noqa: S701 (no page)
    cost = OF_FILTERS[name](value, *arguments)
    if name in {"batch", "slice"}:
        # What fills a row is there once, however often it is named.
        assert size_of([0 for row in made for _ in row]) <= cost + size_of([])
    elif name == "round":
        assert made == round(value, *arguments)
    else:
        assert len(str(made)) <= cost


@given(TEXTS | LISTS, st.integers(-2, 40), TEXTS, LISTS)
def test_no_operator_makes_more_than_it_costs(value, times, text, parts):
    assert size_of(value * times) <= OF_OPERATORS["*"](value, times) + size_of("")
    assert size_of(times * value) <= OF_OPERATORS["*"](times, value) + size_of("")
    assert len(text + text) <= OF_OPERATORS["+"](text, text)
    assert len("%9s" % text) <= OF_OPERATORS["%"]("%9s", text)  # noqa: UP031
    assert len("{:>99}{}".format(text, text)) <= by_braces("{:>99}{}", [text, text])  # noqa: UP032
    assert len(text.join(parts)) <= joined(parts, text)
    assert len(json.dumps(parts)) <= OF_FILTERS["tojson"](parts)
