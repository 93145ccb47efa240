"""Ids in place of tokens: all at once and one by one say the same."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.wire.spelling import id_in, ids_in

well_formed = st.integers(0, 10**9 - 1).map("token_id:{}".format)
anything = st.text(st.characters(), max_size=12)
mangled = st.builds("token_id:{}".format, anything) | st.builds(
    lambda token, at, mark: token[:at] + mark + token[at + 1 :],
    well_formed,
    st.integers(0, 12),
    st.sampled_from(["", "\n", ",", "0", "\N{FULLWIDTH DIGIT NINE}", " ", "token_id:", ":"]),
)


@given(st.lists(well_formed | mangled | anything, max_size=6))
def test_all_at_once_names_what_each_names(tokens: list[str]) -> None:
    alone = [id_in(token) for token in tokens]
    found = ids_in(tokens)
    if found is None:
        assert not tokens or None in alone
    else:
        assert found.tolist() == alone


@given(st.lists(well_formed, min_size=1, max_size=50))
def test_well_formed_ids_are_read_all_at_once(tokens: list[str]) -> None:
    found = ids_in(tokens)
    assert found is not None
    assert found.tolist() == [int(token.removeprefix("token_id:")) for token in tokens]


def test_ten_digits_name_no_id() -> None:
    assert ids_in(["token_id:1", "token_id:1234567890"]) is None
