"""Agreement of judges on the same pairs of answers, as a table."""

from itertools import combinations

import evalica
import numpy as np
import pandas as pd
import polars as pl
import pytest

from orchestrator.clusters import Clusters
from orchestrator.ranking.agreement import agreement_table
from orchestrator.statistics.agreement import cohen_kappa
from orchestrator.tables import Measured

JUDGES = ("first", "second", "third")


def drawn(n_items=40, share_missing=0.2):
    """Verdicts of three judges of different skill, shape (n, 3), some of them missing."""
    rng = np.random.default_rng(1)
    truth = rng.choice([-1.0, 0.0, 1.0], size=(n_items, 1), p=[0.4, 0.2, 0.4])
    guesses = rng.choice([-1.0, 0.0, 1.0], size=(n_items, 3))
    verdicts = np.where(rng.random((n_items, 3)) < [0.9, 0.6, 0.3], truth, guesses)
    verdicts[rng.random((n_items, 3)) < share_missing] = np.nan
    return verdicts


def rows_of(verdicts, judges=JUDGES):
    rows = [
        {"judge": judge, "item": f"i{at}", "turn": 1, "model_a": "x", "model_b": "y",
         "verdict": float(value)}
        for judge, column in zip(judges, verdicts.T, strict=True)
        for at, value in enumerate(column)
        if not np.isnan(value)
    ]  # fmt: skip
    return Clusters().of(pl.DataFrame(rows))


def value(cell):
    assert isinstance(cell, Measured)
    return cell.value


def test_each_two_judges_are_compared_on_the_pairs_that_both_judged():
    verdicts = drawn()
    table = agreement_table("k", rows_of(verdicts), 0.95)
    for row, (one, two) in zip(table.rows, combinations(range(3), 2), strict=False):
        both = verdicts[:, [one, two]]
        known = both[~np.isnan(both).any(axis=1)]
        assert row[:3] == (JUDGES[one], JUDGES[two], len(known))
        assert value(row[3]) == pytest.approx((known[:, 0] == known[:, 1]).mean())
        kappa = cohen_kappa(known[:, 0], known[:, 1], np.arange(len(known)))
        assert value(row[4]) == pytest.approx(kappa.value)
        alpha = evalica.alpha(pd.DataFrame(known.T), "ordinal").alpha
        assert value(row[5]) == pytest.approx(alpha)


def test_alpha_of_all_judges_takes_what_each_judged():
    verdicts = drawn()
    table = agreement_table("k", rows_of(verdicts), 0.95)
    name, other, n, same, kappa, alpha = table.rows[3]
    several = verdicts[(~np.isnan(verdicts)).sum(axis=1) >= 2]
    assert (name, other, n, same, kappa) == ("all 3", "", len(several), None, None)
    assert value(alpha) == pytest.approx(evalica.alpha(pd.DataFrame(several.T), "ordinal").alpha)


def test_it_does_not_depend_on_which_judge_comes_first():
    verdicts = drawn()
    there = agreement_table("k", rows_of(verdicts), 0.95)
    back = agreement_table("k", rows_of(verdicts[:, ::-1], JUDGES[::-1]), 0.95)
    assert value(back.rows[3][5]) == pytest.approx(value(there.rows[3][5]))
    assert back.notes == there.notes


def test_one_judge_and_judges_without_a_common_pair_have_no_rows():
    verdicts = drawn()
    assert agreement_table("k", rows_of(verdicts[:, :1], JUDGES[:1]), 0.95).rows == ()
    apart = np.array([[1.0, np.nan], [np.nan, 1.0]])
    assert agreement_table("k", rows_of(apart, JUDGES[:2]), 0.95).rows == ()


def test_judges_who_never_differ_have_no_agreement_beyond_chance():
    table = agreement_table("k", rows_of(np.ones((9, 2)), JUDGES[:2]), 0.95)
    (row,) = table.rows
    assert value(row[3]) == 1.0
    for cell in row[4:]:
        assert isinstance(cell, Measured)
        assert (cell.value, cell.why) == (None, "all ratings are of one category")
