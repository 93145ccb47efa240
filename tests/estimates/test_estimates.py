"""Statistics of a column: quantile, share above, and a user's own, as tables with intervals."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from orchestrator.estimates import _shares as shares
from orchestrator.statistics.resampling import Resampling, bootstrapped

VALUES = np.array([1.0, 2.0, 3.0, 4.0])
ALONE = np.arange(4)
OF = {"method": "answers", "column": "n_tokens"}


def resampling(n=400, level=0.9):
    return Resampling(n, np.random.default_rng(0), level)


def test_a_quantile_lies_between_two_rows():
    assert shares.Quantile(shares.QuantileConfig(**OF, q=0.5)).of(VALUES) == 2.5
    assert shares.Quantile(shares.QuantileConfig(**OF, q=1)).of(VALUES) == 4.0


def test_an_equal_value_is_not_above():
    assert shares.ShareAbove(shares.ShareAboveConfig(**OF, threshold=2)).of(VALUES) == 0.5


def test_the_interval_of_a_mean_is_that_of_scipy():
    """scipy.stats.bootstrap by percentiles, over single values."""
    from scipy import stats  # noqa: PLC0415 (slow to import)

    values = np.random.default_rng(1).normal(size=60)
    found = bootstrapped(values, np.arange(60), lambda v: float(v.mean()), resampling(4000))
    known = stats.bootstrap(
        (values,), np.mean, n_resamples=4000, confidence_level=0.9, method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    assert found.interval is not None
    assert found.interval.low == pytest.approx(known.low, abs=0.02)
    assert found.interval.high == pytest.approx(known.high, abs=0.02)


def test_copies_of_items_in_one_cluster_do_not_narrow_the_interval():
    once = bootstrapped(VALUES, ALONE, lambda v: float(np.median(v)), resampling())
    copies = bootstrapped(
        np.repeat(VALUES, 5), np.repeat(ALONE, 5), lambda v: float(np.median(v)), resampling()
    )
    assert once.interval == copies.interval
    assert (once.n, copies.n) == (4, 4)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.floats(0, 1))
def test_the_interval_of_a_quantile_stays_within_the_values(values, q):
    given_values = np.array(values)
    made = shares.Quantile(shares.QuantileConfig(**OF, q=q))
    found = bootstrapped(given_values, np.arange(len(values)), made.of, resampling(50))
    assert found.interval is not None
    # Interpolation rounds in the last place.
    least, most = given_values.min() - 1e-6, given_values.max() + 1e-6
    assert least <= found.interval.low <= found.interval.high <= most


def test_what_is_undefined_has_no_interval_and_says_why():
    none = bootstrapped(VALUES[:0], ALONE[:0], lambda v: float(v.mean()), resampling())
    assert math.isnan(none.value)
    one = bootstrapped(VALUES[:1], ALONE[:1], lambda v: float(v.mean()), resampling())
    assert (one.value, one.interval) == (1.0, None)
    assert "no interval" in (one.undefined or "")
    some = bootstrapped(VALUES, ALONE, lambda v: math.nan if v.min() > 1 else 1.0, resampling())
    assert (some.value, some.interval) == (1.0, None)


MINE = """
from orchestrator.plugin import Statistic

class Span(Statistic):
    def of(self, values):
        return float(values.max() - values.min())
"""


def test_statistics_are_tables_of_every_report(command, recipe, here):
    (here / "span.py").write_text(MINE)
    of = [
        {"kind": "quantile", **OF, "q": 0.9},
        {"kind": "share_above", **OF, "threshold": 3},
        {"kind": "./span.py", **OF},
    ]
    path = recipe(
        methods=[{"kind": "answers", "answer": {"max_tokens": 6}}],
        statistics={"n_resamples": 50, "of": of},
    )
    code, out, err = command("run", path, "--allow-code", "--display", "none", "--html", "p.html")
    assert code == EXIT_COMPLETE, err
    page = (here / "p.html").read_text()
    markdown = command("report", "made", "--allow-code", "--format", "markdown")[1].replace(
        "\\", ""
    )
    for title in ("quantile 0.9", "share above 3", "Span"):
        assert title in " ".join(out.split())
        assert f"answers.n_tokens: {title}" in page
        assert f"answers.n_tokens: {title}" in markdown
    documents = json.loads(command("report", "made", "--allow-code", "--format", "json")[1])
    (table,) = [one for one in documents["tables"] if "share above" in str(one.get("title"))]
    assert len(table["rows"]) == 3


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "quantil", **OF}, "no statistic of kind 'quantil'; did you mean 'quantile'?"),
        ({"kind": "quantile", **OF, "q": 2}, "statistics.of.0.q"),
        ({"kind": "quantile", **OF, "method": "answer"}, "unknown method 'answer'; did you mean"),
        ({"kind": "quantile", **OF, "column": "tokens"}, "did you mean 'n_tokens'?"),
        ({"kind": "quantile", **OF, "column": "text"}, "no numeric column 'text'"),
    ],
)
def test_a_wrong_statistic_is_a_fault_of_the_recipe(command, recipe, entry, words):
    path = recipe(methods=[{"kind": "answers"}], statistics={"of": [entry]})
    for name in ("check", "plan", "run"):
        code, _, err = command(name, path)
        assert code == EXIT_USAGE
        assert words in " ".join(err.split())
        assert "made.yaml:" in err
