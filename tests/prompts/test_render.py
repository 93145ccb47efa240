"""Templates of names alone are joined; whatever they hold, Jinja would have said the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.prompts import PromptError, compile_template, render

NAMES = ("prompt", "answer_a", "reference")
TEXTS = st.text(st.characters(exclude_characters="{}#%"), max_size=8)
SPOTS = st.sampled_from(
    ["{{ prompt }}", "{{answer_a}}", "{{- reference -}}", "{# a note #}", "{{ prompt -}}", "\r\n"]
)


@given(
    st.lists(st.one_of(TEXTS, SPOTS)).map("".join),
    st.fixed_dictionaries(dict.fromkeys(NAMES, st.text())),
)
def test_a_template_of_names_renders_as_jinja_renders_it(source, fields):
    assert render(source, fields) == compile_template(source).render(fields)


@pytest.mark.parametrize(
    "source",
    [
        "{{ prompt | upper }}",
        "{% if reference %}{{ prompt }}{% endif %}",
        "{{ prompt ~ answer_a }}",
        "{{ prompt[:2] }}",
        "{{ 'a' }}{{ 1 + 1 }}",
        "{{ loop is defined }}",
        "{{ range(3) | list }}",
        "{{ range }}",
    ],
)
def test_every_other_template_is_left_to_jinja(source):
    fields: dict[str, str | None] = {"prompt": "question", "answer_a": "yes", "reference": "no"}
    assert render(source, fields) == compile_template(source).render(fields)


@pytest.mark.parametrize("fields", [{}, {"prompt": None}])
def test_a_field_that_is_not_there_is_named(fields):
    with pytest.raises(PromptError, match="'prompt' is undefined"):
        render("Say: {{ prompt }}", fields)


def test_what_a_model_wrote_is_text_and_no_template():
    assert render("{{ answer_a }}", {"answer_a": "{{ 7 * 7 }}{% x"}) == "{{ 7 * 7 }}{% x"


def test_a_malformed_template_is_a_prompt_error():
    with pytest.raises(PromptError, match="prompt template"):
        render("{{ prompt", {"prompt": "x"})
