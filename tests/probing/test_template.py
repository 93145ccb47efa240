import datetime as dt

import pytest

from orchestrator.probing import checks
from orchestrator.probing.record import BAD, WARNING

DAY = dt.date(2026, 7, 4)


def values(text):
    return {finding.name: finding.value for finding in checks.template(text, DAY)}


def test_a_doubled_first_token_is_a_doubled_bos():
    assert checks.beginning((1, 1, 5)).state == BAD
    assert checks.beginning((1, 5, 5)).value == "no"


@pytest.mark.parametrize(
    ("tail", "value"),
    [("<think>\n", "open"), ("<think>\n\n</think>\n", "closed"), ("", "none")],
)
def test_think_blocks_at_the_end_of_the_prompt(tail, value):
    assert values(f"<|user|>hello<|assistant|>{tail}")["think_block"] == value


def test_a_think_block_far_before_the_end_is_the_users():
    assert values("<think>" + "x" * 500)["think_block"] == "none"


@pytest.mark.parametrize(
    "written", ["2026-07-04", "04 Jul 2026", "4 Jul 2026", "July 4, 2026", "03 July 2026"]
)
def test_a_date_of_today_or_the_day_beside_is_found(written):
    assert values(f"Today Date: {written}")["date"] == "yes"


def test_a_fixed_date_is_not_todays():
    assert values("Today Date: 26 Jul 2024")["date"] == "no"


def test_lengths():
    assert checks.prompt_length(10, 10).value == "same"
    assert checks.prompt_length(10, 11).state == BAD
    assert checks.prompt_length(10, None).value == "unknown"


def test_odd_characters_come_back_or_do_not():
    assert checks.round_trip(f"<|user|>{checks.NASTY}<|assistant|>").value == "exact"
    assert checks.round_trip(checks.NASTY.replace("\r\n", "\n")).state == WARNING
