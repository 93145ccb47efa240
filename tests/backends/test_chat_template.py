"""A chat template rendered by the client: the text that `transformers` makes of it."""

import pytest

from backends.sglang import rendered
from orchestrator.records import Failure, Message
from tests.conftest import BUNDLED

MESSAGES = (
    Message("system", "Be kind."),
    Message("user", "Hi {{ x }}\n"),
    Message("assistant", "a"),
)
# Blocks on lines of their own, what is not given, and a loop that is broken off.
LONG = """{{- bos_token }}
{%- if tools is defined and tools %}
    {{- tools }}
{% endif %}
{% for message in messages %}
    {% if loop.index > 9 %}
        {% break %}
    {% endif %}
    {{- '<|' + message['role'] + '|>\\n' + message['content'] | trim + '<|end|>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def test_blocks_take_no_line_of_their_own():
    found = rendered(LONG, MESSAGES[1:], TOKENS)
    assert found == "<s><|user|>\nHi {{ x }}<|end|>\n\n<|assistant|>\na<|end|>\n\n"


def test_it_is_the_text_of_transformers():
    jinja = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="torch and the bundled models are absent"
    )
    bundled = (BUNDLED / "novice" / "chat_template.jinja").read_text(encoding="utf-8")
    for source in (LONG, bundled):
        turns = [{"role": role, "content": content} for role, content in MESSAGES]
        (expected,), _ = jinja.render_jinja_template([turns], chat_template=source, **TOKENS)
        assert rendered(source, MESSAGES, TOKENS) == expected


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for", "unexpected"),
        ("{{ messages[7].content }}", "has no"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 'x' * 10000000000 }}", ""),
    ],
)
def test_a_template_that_fails_is_a_failure(source, said):
    found = rendered(source, MESSAGES, {})
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("bad_request", True)
    assert "chat_template" in found.message
    assert said in found.message
