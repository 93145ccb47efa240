"""The table beside the peers says what failed and what is missing, and never a number for it."""

import pytest

from benchmarks.peers.__main__ import arguments
from benchmarks.peers.measure import Measured, Slope
from benchmarks.peers.table import Line, compared


def slope(cpu_ms=0.25, *, n=100, with_logprobs=100, rss_mb=80.0):
    return Slope(cpu_ms, cpu_ms, cpu_ms, 2000.0, Measured(n, with_logprobs, 1.0, 1.0, rss_mb))


def rows(*lines, levels=(512,)):
    text = compared(lines, ("judge", "large"), levels, 512)
    cells = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("|")]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]], text


def test_a_client_that_does_not_install_has_a_row_without_figures_and_the_reason_below():
    (row,), text = rows(Line("peer", faults={"install": "no matching distribution"}))
    assert row["version"] == "not installed"
    assert set(list(row.values())[2:]) == {"-"}
    assert "- peer, install: no matching distribution" in text


def test_a_body_that_failed_is_said_to_have_failed_beside_one_that_did_not():
    line = Line("peer", "1.0", slopes={"judge": slope()}, faults={"large": "exit code 1: boom"})
    (row,), text = rows(line)
    assert (row["judge: CPU ms"], row["large: CPU ms"]) == ("0.250", "failed")
    assert "- peer, large: exit code 1: boom" in text


def test_the_range_of_several_repeats_is_shown():
    repeated = Slope(0.2, 0.1, 0.4, 2000.0, Measured(100, 100, 1.0, 1.0, 80.0))
    (row,), _ = rows(Line("peer", slopes={"judge": repeated}))
    assert row["judge: CPU ms"] == "0.200 (0.100-0.400)"


def test_log_probs_are_kept_only_where_every_answer_has_them():
    lines = [
        Line("all", slopes={"judge": slope(), "large": slope()}),
        Line("some", slopes={"judge": slope(), "large": slope(with_logprobs=99)}),
        Line("none", slopes={"judge": slope(with_logprobs=0)}),
    ]
    found, _ = rows(*lines)
    assert [row["log-probs kept"] for row in found] == ["yes", "judge", "no"]


def test_what_was_open_stands_under_what_was_allowed():
    (row,), _ = rows(Line("peer", opened={512: 100}), levels=(512, 2000))
    assert (row["open of 512"], row["open of 2,000"]) == ("100", "-")


def test_a_client_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        arguments().parse_args(["--only", "nobody"])
    assert ended.value.code == 2
    assert "invalid choice: 'nobody'" in capsys.readouterr().err
