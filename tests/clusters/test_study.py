"""Coverage and wrong orders where items come in clusters; `benchmarks/clusters.py` simulates."""

import math

import pytest

from benchmarks import clusters

LEVEL, ERROR = 0.95, clusters.ERROR


def faults(found, n_simulations, slack):
    """Name the intervals whose coverage is too low, beyond Monte-Carlo error and `slack`."""
    error = 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_simulations)
    return {
        name: tally.coverage
        for name, tally in found.items()
        if name != "rating, by item" and tally.coverage < LEVEL - slack - error
    }


def test_intervals_over_clusters_cover_where_those_over_items_do_not():
    found = clusters.simulate(clusters.Cell(2, 20, 10), 60)
    assert faults(found, 60, 0.01) == {}
    assert found["rating, by item"].coverage < 0.75


def test_copies_that_no_cluster_names_add_no_certainty():
    as_independent, as_found = clusters.copied_ratings(clusters.Cell(2, 20, 3), 60)
    assert as_independent < 90 <= as_found


@pytest.mark.parametrize("equal", [True, False])
def test_orders_of_unnamed_clusters_are_by_cluster_or_refused(equal):
    cell = clusters.Cell(5, 40, 10)
    as_independent, as_found, refused = clusters.copied_orders(cell, 8, equal=equal)
    assert as_independent >= 50
    assert (as_found, refused) == (0, 0) if equal else refused == 100


FIVE = pytest.param(5, marks=pytest.mark.long)


@pytest.mark.slow
@pytest.mark.parametrize("n_models", [2, FIVE])
@pytest.mark.parametrize("n_clusters", [6, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("size", [*clusters.SIZES, clusters.UNEVEN])
def test_intervals_cover_whatever_the_size_of_clusters(n_models, n_clusters, size):
    found = clusters.simulate(clusters.Cell(n_models, n_clusters, size), 300, seed=1)
    assert faults(found, 300, 0.015) == {}


@pytest.mark.slow
@pytest.mark.parametrize("n_models", [2, FIVE])
@pytest.mark.parametrize("size", [*clusters.SIZES, clusters.UNEVEN])
def test_wrong_orders_are_as_rare_as_is_said(n_models, size):
    n = 150
    cell = clusters.Cell(n_models, clusters.N_ITEMS // (size or 3), size)
    by_item, by_cluster = clusters.wrong_orders(cell, n)
    assert by_cluster <= 100 * (ERROR + 3 * math.sqrt(ERROR * (1 - ERROR) / n))
    if (n_models, size) == (5, 10):
        # The fault that it is for.
        assert by_item > 50
