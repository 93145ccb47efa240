"""Templates take only so much time and memory; the harmless ones render as plain Jinja does."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.prompts import PromptError, costs, render, variables
from orchestrator.prompts.files import read_wordings
from tests.crossed import LONG

TEXT = "x" * 1_000_000
DOUBLING = (
    "{% set ns = namespace(x=START) %}"
    "{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ END }}"
)
COSTLY = (
    "{{ 'x' * 10**9 }}",
    "{{ 10**9 * 'x' }}",
    "{{ [p] * 10**8 }}",
    "{{ (10**1000) ** 1000 }}",
    "{{ 10**1000 * 10**1000 }}",
    "{{ 'x' | center(10**10) }}",
    "{{ 'x'.center(10**10) }}",
    "{{ 'a\t'.expandtabs(10**10) }}",
    "{{ p | indent(10**9) }}",
    "{{ p | indent(first=True, width=10**9) }}",
    "{{ ('a\n' * 1000) | indent(p) }}",
    "{{ p | replace('x', p) }}",
    "{{ p.replace('x', p) }}",
    "{{ p | map('replace', 'x', p) | list }}",
    "{{ p.join(p) }}",
    "{{ p | join(p) }}",
    "{{ p | wordwrap(1, wrapstring=p) }}",
    "{{ [1] | batch(10**9, 'x') | list }}",
    "{{ [1] | slice(10**9) | list }}",
    "{{ [[1], [2]] | sum(start=[]) }}",
    "{{ 1.5 | round(10**9, 'ceil') }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10**9) }}",
    "{{ {'a': [p]} | tojson(indent=10**8) }}",
    "{{ {'a': [p]} | tojson('\t' * 10**7) }}",
    "{{ " + "[" * 90 + "1," * 9_000 + "]" * 90 + " | tojson(100) }}",
    "{{ (1).to_bytes(10**9, 'big') }}",
    "{{ p.translate({120: p}) }}",
    "{{ ('<!---->' * 200000) | striptags }}",
    "{% for i in range(100000) %}{{ p }}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{% filter replace('x', 'y' * 1000000) %}{{ p }}{% endfilter %}",
    "{{ [" + ",".join(["p[1:]"] * 10_000) + "] | length }}",
    "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "{{ " + "9" * 5_000 + " }}",
    "{% for a in p %}" * 30 + "{% endfor %}" * 30,
    "{{ 'abc' | truncate(2) }}",
    *(
        DOUBLING.replace("START", start).replace("STEP", step).replace("END", end)
        for start, step, end in (
            ("'xxxxxxxxxxxxxxxx'", "ns.x ~ ns.x", "ns.x"),
            ("'xxxxxxxxxxxxxxxx'", "ns.x + ns.x", "ns.x"),
            ("['x']", "[ns.x, ns.x]", "ns.x"),
            ("['x']", "[ns.x, ns.x]", "ns"),
            ("['x']", "{'a': ns.x, 'b': ns.x}", "ns.x | tojson"),
        )
    ),
)
# Values that hold one another many times over, which comparing or hashing visits each time.
SHARED = (
    "{% set a = START %}{% set b = START %}" + "{% set a = STEP(a) %}{% set b = STEP(b) %}" * 60
)
LISTS = SHARED.replace("START", "[1]").replace("STEP(a)", "[a, a]").replace("STEP(b)", "[b, b]")
TUPLES = SHARED.replace("START", "(1,)").replace("STEP(a)", "(a, a)").replace("STEP(b)", "(b, b)")
SEARCHED = (
    *(
        "{% for i in range(100000) %}{% if TEST %}{% endif %}{% endfor %}".replace("TEST", test)
        for test in ("'xy' in p", "p < p[:]", "p is lower", "'xy' is in p", "'xy' not in p")
    ),
    "{{ range(100000) | map('string') | reject('in', p) | list }}",
    LISTS + "{{ a == b }}",
    LISTS + "{{ a is eq(b) }}",
    LISTS + "{{ 1 if 0 < 1 != a == b else 2 }}",
    TUPLES + "{{ {a: 1} | length }}",
    TUPLES + "{{ {'x': 1}[a] is defined }}",
    TUPLES + "{{ a in {'x': 1} }}",
)
HARMLESS = (
    "{% for i in range(3) %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for a in [1, 2, 3] if a > 1 %}{{ a }}{% else %}none{% endfor %}",
    "{% for c in p recursive %}{{ c }}{% endfor %}",
    "{{ p | upper | replace('A', '**') | trim }}",
    "{{ '%s and %5.2f, 100%%' % (p, 1) }}",
    "{{ '**{}** {:>4} {{x}}'.format(p, 1) }}",
    "{{ p ~ 1 ~ [1] }}{{ p + p }}{{ p[:2] }}{{ p[1:] }}{{ p[::-1] }}{{ p[0:1] }}",
    "{{ [1, 2] | join(', ') }}{{ [1, 2] | sum }}{{ [3, 1] | sort | map('string') | join('+') }}",
    "{{ ', '.join(p) }}{{ p.split('b') | last }}{{ p.center(20) }}{{ p | center(9) }}",
    "{{ q | default('none') }}{{ 3 * 4 + 2 ** 3 % 5 }}{{ '-' * 20 }}{{ 1.256 | round(1) }}",
    "{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m('k') }}{% set x = 'y' %}{{ x }}",
    "{{ 'a\nb' | indent(2) }}{{ 'a\nb' | indent(width=2, first=True) }}{{ {'a': [1]} | tojson }}",
    "{{ 'one two three' | wordwrap(7) }}{{ 'a long text here' | truncate(9) }}",
    "{{ 1 < 2 <= 3 == 3 }}{{ 'b' in p }}{{ q is defined }}{{ p is lower }}",
    "{{ 3 is divisibleby(3) }}{{ [1, 'a'] | unique | list }}",
    "{{ {p: 1, 'k': [2]}[p] }}{{ {'k': 2}.k }}{{ {} }}{{ not p == 'abc' }}{{ 2 is not in [1] }}",
    "{{ ['b', 'a'] | select('in', p) | list }}{{ 'upper' is filter }}",
    "{% for row in [1, 2, 3] | batch(2, 0) %}{{ row }}{% endfor %}{{ none }}{{ true }}",
)


# More than loops over all of a text cost. The whole allowance takes a second or so to use up.
QUARTER = 1 << 24
assert QUARTER * 4 == costs.MOST_WORK
ALLOWED = pytest.mark.parametrize(
    "allowed", [QUARTER, pytest.param(costs.MOST_WORK, marks=LONG)], ids=["a quarter", "all"]
)


@pytest.fixture
def _allowed(allowed, monkeypatch):
    monkeypatch.setattr(costs, "MOST_WORK", allowed)


@ALLOWED
@pytest.mark.usefixtures("_allowed")
@pytest.mark.parametrize("source", COSTLY, ids=range(len(COSTLY)))
def test_a_template_that_costs_too_much_is_a_prompt_error(source):
    with pytest.raises(PromptError, match=r"prompt template: ."):
        render(source, {"p": TEXT})


@ALLOWED
@pytest.mark.usefixtures("_allowed")
@pytest.mark.parametrize("source", SEARCHED, ids=range(len(SEARCHED)))
def test_what_a_template_compares_searches_and_hashes_is_charged(source):
    with pytest.raises(PromptError, match=r"characters|too many steps"):
        render(source, {"p": TEXT})


def test_the_whole_allowance_is_refused_too():
    with pytest.raises(PromptError, match=r"too many steps|characters"):
        render(SEARCHED[0], {"p": TEXT})


@pytest.mark.parametrize("source", HARMLESS)
@given(text=st.sampled_from(["abc", "", "B b\n"]))
def test_a_harmless_template_renders_as_the_plain_sandbox_does(source, text):
    plain = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    assert render(source, {"p": text}) == plain.from_string(source).render(p=text)


@pytest.mark.parametrize("name", ["lipsum", "random"])
def test_nothing_in_a_template_is_drawn_at_random(name):
    with pytest.raises(PromptError):
        render("{{ lipsum() }}" if name == "lipsum" else "{{ p | random }}", {"p": "abc"})


def test_what_a_template_takes_from_outside_does_not_count_its_own_loop():
    assert variables("{% for a in p %}{{ a }}{% endfor %}") == {"p"}


def test_a_file_of_turns_that_never_end_is_read_in_linear_time(tmp_path):
    file = tmp_path / "turns.txt"
    file.write_text("<|im_start|>user\n" * 60_000, encoding="utf-8")
    (wording,) = read_wordings(file).values()
    assert wording.user.count("<|im_start|>") == 60_000


def test_turns_of_chat_markup_become_system_and_user(tmp_path):
    file = tmp_path / "turns.txt"
    file.write_text(
        "<|im_start|>system\nJudge.\n<|im_end|>\n<|im_start|>user\nA: {a}<|im_end|>\n",
        encoding="utf-8",
    )
    (wording,) = read_wordings(file).values()
    assert (wording.system, wording.user) == ("Judge.", "A: {a}")


@pytest.mark.parametrize("argument", ["indent=10**7", "10**7", "'\t' * 10**7"])
def test_json_that_would_be_too_large_is_never_made(argument):
    tracemalloc.start()
    try:
        with pytest.raises(PromptError, match="makes a value of"):
            render("{{ [[p]] | tojson(" + argument + ") }}", {"p": "x"})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20_000_000


@pytest.mark.parametrize(("n", "is_refused"), [(19_000, False), (21_000, True)])
def test_a_template_of_too_many_parts_is_refused(n, is_refused):
    template = "{{ a }}" * n
    if is_refused:
        with pytest.raises(PromptError, match="parts"):
            render(template, {"a": "x"})
    else:
        assert render(template, {"a": "x"}) == "x" * n
