"""Rows of the table of faults."""

from dataclasses import replace

from tests.chaos.table import Row, joined, sums

ROW = Row("The server", "400: answers", 6, "3", "18 units failed", 30, 0, 0, "frames equal")


def test_faults_that_end_alike_are_one_row():
    others = [replace(ROW, fault="400: judgments"), replace(ROW, fault="no reply")]
    (row,) = joined([ROW, *others])
    assert (row.fault, row.times, row.recorded) == ("400: answers / judgments; no reply", 18, 90)


def test_faults_that_lose_something_or_end_with_a_count_have_rows_of_their_own():
    rows = [replace(ROW, lost=1), replace(ROW, lost=1, fault="x"), replace(ROW, then="2 repaired")]
    assert list(joined(rows)) == rows


def test_the_page_sums_up_what_lost_nothing_and_names_what_lost_some():
    rows = [ROW, replace(ROW, fault="no reply"), replace(ROW, fault="bits", lost=2, asked_again=3)]
    assert sums(rows).strip().splitlines()[2:] == [
        "| The server: 2 kinds | 12 | 60 | 0 | 0 |",
        "| The server: bits | 6 | 30 | 2 | 3 |",
    ]
