import random
from itertools import combinations

import numpy as np
import pytest

from orchestrator.columns import pack_row
from orchestrator.contracts.method import schema_of
from orchestrator.frames import make_frame
from orchestrator.judgment.similarity import peer_votes
from orchestrator.methods import peer_elo as method
from orchestrator.statistics.bradley_terry import fit_bradley_terry, to_elo
from orchestrator.summaries import peer_elo
from orchestrator.summaries._peer import read_votes
from tests.summaries.told import summarise

MODELS = ("a", "b", "c", "d")
COLUMNS = {"method": "str", **schema_of(method.Kind)}
N_ITEMS = 60


def rows_of(n_items=N_ITEMS, models=MODELS, lengths=None, kin=()):
    """Made-up items: the earlier a model stands, the more similar to others its answers are.

    Args:
        n_items: How many.
        models: Best first.
        lengths: Characters of each model's answers; 10 where left out.
        kin: Models that find each other more similar.
    """
    rng = np.random.default_rng(1)
    worth = np.linspace(0.1, -0.1, len(models))
    rows = []
    for item in range(n_items):
        scores = 0.5 + worth + rng.normal(0, 0.15, (len(models), len(models)))
        for i, j in combinations([models.index(model) for model in kin], 2):
            scores[i, j] += 0.5
            scores[j, i] += 0.5
        for first, second, judges, voted in peer_votes(scores, [True] * len(models), 1e-6):
            a, b, votes = models[first], models[second], list(voted)
            wins_a, wins_b = votes.count(1.0), votes.count(0.0)
            rows.append(
                {
                    "method": "peer_elo", "item": f"i{item}", "turn": 1, "model_a": a, "model_b": b,
                    "judges": [models[k] for k in judges], "votes": votes,
                    "wins_a": wins_a, "wins_b": wins_b, "ties": 0, "undefined": 0,
                    "prefer_a": wins_a / len(votes), "f1": float(scores[first, second]),
                    "length_a": (lengths or {}).get(a, 10), "length_b": (lengths or {}).get(b, 10),
                    "same_text": False, "missing": [], "n_truncated": 0, "status": "ok",
                }
            )  # fmt: skip
    return rows


def frame(rows):
    return make_frame(COLUMNS, [pack_row(COLUMNS, row) for row in rows])


@pytest.fixture
def tables_of(context_of):
    def make(rows, **settings):
        config = method.Config(**{"elo_orders": 50, **settings})
        context = context_of("peer_elo", method, frame(rows), config=config)
        return {table.key: table for table in summarise(context)}

    return make


def column(table, name):
    at = [column.name for column in table.columns].index(name)
    return [row[at] for row in table.rows]


def test_ratings_are_those_of_bradley_terry_over_all_votes(tables_of):
    rows = rows_of()
    wins = np.zeros((4, 4))
    for row in rows:
        i, j = MODELS.index(row["model_a"]), MODELS.index(row["model_b"])
        wins[i, j] += row["wins_a"]
        wins[j, i] += row["wins_b"]
    expected = to_elo(fit_bradley_terry(wins).strengths)
    table = tables_of(rows)["peer_elo"]
    found = dict(zip(column(table, "model"), column(table, "rating"), strict=True))
    assert [found[model].value for model in MODELS] == pytest.approx(expected)
    assert all(cell.low < cell.value < cell.high for cell in found.values())
    assert column(table, "model") == list(MODELS)
    assert column(table, "votes") == [N_ITEMS * 3 * 2] * 4


def test_the_basis_says_what_all_rests_on(tables_of):
    rows = rows_of()
    rows[0] |= {"votes": [1.0, float("nan")], "undefined": 1}
    rows[6:12] = [row | {"missing": ["e"]} for row in rows[6:12]]
    rows[12:18] = [row | {"n_truncated": 3} for row in rows[12:18]]
    rows.append({"method": "peer_elo", "item": "x", "status": "failed", "cause": "dead_server"})
    table = tables_of(rows)["peer_elo"]
    assert table.basis == (
        f"{N_ITEMS} prompts · {N_ITEMS * 12 - 1} votes · 1 votes undefined · 1 answers missing · "
        "3 answers truncated for comparison · 1 without votes"
    )
    assert dict(zip(column(table, "model"), column(table, "missing"), strict=True))["e"] == 1


def test_a_model_that_never_answered_has_no_rating(tables_of):
    found = tables_of([row | {"missing": ["e"]} for row in rows_of()])
    for key, names in (("peer_elo", ("rating",)), ("peer_elo.elo", ("as published",))):
        for name in names:
            cells = dict(zip(column(found[key], "model"), column(found[key], name), strict=True))
            assert cells["e"].value is None
    assert len(found["peer_elo.elo_wins"].rows) == 6


def test_every_table_of_ratings_ends_with_the_models_that_have_none(tables_of):
    """Names that would stand first and last; so would a rating that is no number."""
    models = {"0", *MODELS, "z"}
    rows = [row | {"missing": ["0", "z"]} for row in rows_of()]
    tables = tables_of(rows, families=dict.fromkeys(models, "x") | {"b": "y", "c": "y"})
    for key, name in (
        ("peer_elo", "rating"),
        ("peer_elo.elo", "as published"),
        ("peer_elo.without_kin", "rating"),
    ):
        assert set(column(tables[key], "model")) == models
        cells = column(tables[key], name)
        ratings = [-np.inf if cell.value is None else cell.value for cell in cells]
        assert ratings == sorted(ratings, reverse=True)
        assert np.isinf(ratings).sum() == 2


def published_elo(votes, seed=0, runs=300):
    """Medians over resampled votes, one vote at a time, as the source computes them."""
    drawn = random.Random(seed)
    ratings: dict[str, list[float]] = {model: [] for model in MODELS}
    for _ in range(runs):
        rating = dict.fromkeys(MODELS, 1000.0)
        for a, b, score in drawn.choices(votes, k=len(votes)):
            moved = 4 * (score - 1 / (1 + 10 ** ((rating[b] - rating[a]) / 400)))
            rating[a] += moved
            rating[b] -= moved
        for model, found in rating.items():
            ratings[model].append(found)
    return {model: np.median(found) for model, found in ratings.items()}


def test_elo_as_published_is_the_median_over_resampled_votes(tables_of):
    rows = rows_of()
    votes = [(row["model_a"], row["model_b"], vote) for row in rows for vote in row["votes"]]
    found = tables_of(rows, elo_orders=300)
    table = found["peer_elo.elo"]
    cells = dict(zip(column(table, "model"), column(table, "as published"), strict=True))
    expected = published_elo(votes)
    assert max(expected.values()) - min(expected.values()) > 60
    for model, cell in cells.items():
        assert cell.value == pytest.approx(expected[model], abs=6)
        assert cell.low < cell.value < cell.high
    assert sum(column(table, "wins")) == N_ITEMS * 12
    predicted = found["peer_elo.elo_wins"]
    first, *_ = zip(
        *(column(predicted, name) for name in ("model", "against", "predicted win rate")),
        strict=True,
    )
    odds = 10 ** ((cells["a"].value - cells["b"].value) / 400)
    assert first == ("a", "b", pytest.approx(odds / (1 + odds)))


def test_elo_can_be_left_out_and_is_where_it_takes_too_long(tables_of, monkeypatch):
    assert "peer_elo.elo" not in tables_of(rows_of(), elo_orders=0)
    monkeypatch.setattr(peer_elo, "MOST_BATTLES", 10)
    table = tables_of(rows_of())["peer_elo.elo"]
    assert all(cell.value is None and cell.why for cell in column(table, "as published"))
    assert sum(column(table, "wins")) == N_ITEMS * 12


def test_tables_do_not_depend_on_the_order_of_the_rows(tables_of):
    rows = rows_of(20)
    plain, moved = tables_of(rows), tables_of(rows[::-1])
    for key in ("peer_elo", "peer_elo.elo", "peer_elo.wins"):
        assert plain[key].rows == moved[key].rows


def test_win_rates_of_each_pair_in_the_order_of_the_ratings(tables_of):
    table = tables_of(rows_of())["peer_elo.wins"]
    assert len(table.rows) == 6
    assert all(cell.value > 0.5 for cell in column(table, "win rate"))
    assert column(table, "votes") == [N_ITEMS * 2] * 6


def test_votes_that_follow_length_are_seen(tables_of):
    longer_wins = tables_of(rows_of(lengths={"a": 40, "b": 30, "c": 20, "d": 10}))
    share, spearman = column(longer_wins["peer_elo.length"], "value")
    assert share.low > 0.5
    assert spearman.low > 0.2
    shorter_wins = tables_of(rows_of(lengths={"a": 10, "b": 20, "c": 30, "d": 40}))
    share, spearman = column(shorter_wins["peer_elo.length"], "value")
    assert share.high < 0.5
    assert spearman.high < -0.2


def test_equal_lengths_say_nothing_about_length(tables_of):
    share, spearman = column(tables_of(rows_of())["peer_elo.length"], "value")
    assert share.value is None
    assert spearman.value is None


def test_kin_that_vote_for_each_other_are_seen_and_rated_without_their_votes(tables_of):
    families = {"c": "x", "d": "x"}
    tables = tables_of(rows_of(kin=("c", "d")), families=families)
    (own,), (others,), (difference,) = (
        column(tables["peer_elo.families"], name)
        for name in ("votes of its family", "votes of others", "difference")
    )
    assert own.value > 0.9
    assert others.value < 0.5
    assert difference.low > 0.3
    table = tables["peer_elo.without_kin"]
    change = dict(zip(column(table, "model"), column(table, "change"), strict=True))
    assert change["c"] < 0
    assert change["d"] < 0


def test_strangers_have_no_table_of_kin(tables_of):
    assert "peer_elo.families" not in tables_of(rows_of())
    assert "peer_elo.families" not in tables_of(rows_of(), families={"a": "x", "b": "y"})


def test_the_others_by_their_nearness_to_the_top_model(tables_of):
    rows = rows_of()
    table = tables_of(rows)["peer_elo.nearest"]
    found = dict(zip(column(table, "model"), column(table, "F1 with the top model"), strict=True))
    assert set(found) == {"b", "c", "d"}
    by_hand = [row["f1"] for row in rows if (row["model_a"], row["model_b"]) == ("a", "c")]
    assert found["c"].value == pytest.approx(np.mean(by_hand))
    values = [cell.value for cell in column(table, "F1 with the top model")]
    assert values == sorted(values, reverse=True)


def test_no_votes_are_no_tables(tables_of):
    assert tables_of([]) == {}
    failed = {"method": "peer_elo", "item": "x", "status": "failed", "cause": "dead_server"}
    assert tables_of([failed]) == {}


def test_votes_are_read_as_they_were_given(context_of):
    votes = read_votes(context_of("peer_elo", method, frame(rows_of(2))))
    assert votes is not None
    assert (votes.models, votes.n_prompts, len(votes.prompts)) == (MODELS, 2, 24)
    for prompt, first, second, judge in zip(
        votes.prompts, votes.first, votes.second, votes.judge, strict=True
    ):
        assert len({first, second, judge}) == 3
        assert prompt in {0, 1}
