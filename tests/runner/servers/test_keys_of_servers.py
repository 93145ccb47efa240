"""API keys come from environment variables; white space around them is of the file, not the key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.runner.servers.connections import key_in

AROUND = st.text(" \t\r\n", max_size=3)
KEYS = st.from_regex(r"[!#-&(-~]{1,20}", fullmatch=True)


@given(AROUND, st.sampled_from(["", "'", '"']), KEYS, AROUND)
def test_white_space_and_quotes_around_a_key_are_left_out(before, quote, key, after):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY", before + quote + key + quote + after)
        assert key_in("A_KEY") == key


@given(KEYS, st.sampled_from([" ", "\n", "\t", "é", "\x7f"]), KEYS)
def test_what_no_header_can_carry_is_said_without_the_key(begin, wrong, end):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY", begin + wrong + end)
        with pytest.raises(UsageError, match="A_KEY has white space or a character") as raised:
            key_in("A_KEY")
    assert str(raised.value).endswith("outside ASCII")


@pytest.mark.parametrize("value", ["", " \n", '""', "' '", "'"])
def test_an_empty_variable_is_not_set(monkeypatch, value):
    monkeypatch.setenv("A_KEY", value)
    with pytest.raises(UsageError, match="A_KEY is not set"):
        key_in("A_KEY")
