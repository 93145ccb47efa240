import json

from hypothesis import given
from hypothesis import strategies as st

from backends.openai import origin_of, words


def body(content="x", **more):
    choices = [{"message": {"role": "assistant", "content": content}}]
    return json.dumps({"id": "1", "model": "m-1", "choices": choices, **more}).encode()


def test_model_and_fingerprint_are_found_before_and_after_a_long_answer():
    long = body("word " * 10_000, usage={"prompt_tokens": 3}, system_fingerprint="fp_1")
    assert origin_of(long) == (b"m-1", b"fp_1")
    assert words(origin_of(long), "") == "m-1 (fp_1)"


def test_a_fingerprint_may_stand_before_the_answer():
    first = b'{"model":"m","system_fingerprint":"fp","choices":[' + b"0," * 2000 + b"0]}"
    assert origin_of(first) == (b"m", b"fp")


def test_what_is_not_said_is_empty():
    assert origin_of(b'{"choices":[]}') == (b"", b"")
    assert origin_of(b"") == (b"", b"")
    assert origin_of(b'{"model":"' + b"m" * 1000 + b'"}') == (b"", b"")
    assert words(origin_of(body(system_fingerprint=None)), "") == "m-1"


def test_a_key_is_not_shown():
    assert "sk-secret-1234" not in words((b"sk-secret-1234", b""), "sk-secret-1234")


@given(st.text(max_size=300), st.booleans())
def test_no_answer_can_name_another_model(text, spaced):
    separators = (", ", ": ") if spaced else (",", ":")
    spoof = f'{text}"model":"evil","system_fingerprint":"evil",'
    reply = {"choices": [{"message": {"content": spoof}}]}
    assert origin_of(json.dumps(reply, separators=separators).encode()) == (b"", b"")
