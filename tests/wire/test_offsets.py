from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import Generation
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from tests.wire.bodies import chat, entry


def read(text, tokens, reason="stop", **reading):
    entries = [entry(token, -0.5) for token in tokens]
    made = replies.generation(chat(text, entries, reason), Reading(**reading))
    assert isinstance(made, Generation)
    return made


def test_each_token_begins_where_the_text_has_it():
    made = read("so [[>]]", ["so", " [[", ">", "]]", "<|end|>"], offsets=True)
    assert made.offsets.tolist() == [0, 2, 5, 6]
    assert [made.text[at:] for at in made.offsets] == ["so [[>]]", " [[>]]", ">]]", "]]"]


def test_they_are_read_where_nothing_else_tells_tokens_apart():
    assert read("a b", ["a", " b"]).offsets.tolist() == [0, 1]


def test_they_are_not_read_where_nobody_asks_and_there_are_ids():
    entries = [entry(token, -0.5) for token in ("a", " b")]
    made = replies.generation(chat("a b", entries, "length", [1, 2]), Reading())
    assert isinstance(made, Generation)
    assert made.offsets is None


def test_white_space_that_the_server_stripped_belongs_to_the_first_token():
    assert read("so it is", [" so", " it", " is"], offsets=True).offsets.tolist() == [0, 2, 5]


def test_a_token_inside_a_character_begins_with_it():
    parts = ["a", "日本"]
    cuts = ["日".encode()[:2], "日".encode()[2:] + "本".encode()]
    entries = [entry("a", -0.5), *({**entry("", -0.5), "bytes": list(cut)} for cut in cuts)]
    made = replies.generation(chat("".join(parts), entries, "length"), Reading(offsets=True))
    assert starts(made) == [0, 1, 1]


def starts(made):
    assert isinstance(made, Generation)
    assert made.offsets is not None
    return made.offsets.tolist()


def test_there_are_none_where_the_tokens_do_not_spell_the_text():
    made = read("soéit", ["so", "\ufffd", "it"], "length", offsets=True)
    assert isinstance(made, Generation)
    assert made.offsets is None


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=8)
)
def test_any_cutting_of_a_text_is_found_again(tokens):
    made = read("".join(tokens), tokens, "length", offsets=True)
    ends = [*starts(made)[1:], len(made.text)]
    assert [made.text[a:b] for a, b in zip(made.offsets, ends, strict=True)] == tokens
