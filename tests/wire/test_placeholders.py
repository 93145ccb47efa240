"""Ids in place of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import UNKNOWN_ID
from orchestrator.wire.spelling import id_in

well_formed = st.integers(0, 10**9 - 1).map("token_id:{}".format)
mangled = st.builds(
    lambda token, at, mark: token[:at] + mark + token[at:],
    well_formed,
    st.integers(0, 12),
    st.sampled_from(["\n", ",", "\N{FULLWIDTH DIGIT NINE}", " ", "token_id:", ":", "-"]),
)


@given(well_formed)
def test_a_well_formed_token_names_its_id(token: str) -> None:
    assert id_in(token) == int(token.removeprefix("token_id:"))


@given(mangled | st.text(st.characters(), max_size=12))
def test_any_other_text_names_none(token: str) -> None:
    assert id_in(token) == UNKNOWN_ID


def test_ten_digits_name_no_id() -> None:
    assert id_in("token_id:1234567890") == UNKNOWN_ID
