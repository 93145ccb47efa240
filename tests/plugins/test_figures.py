"""A method of a file beside the recipe: rankings and figures come from what it says of its rows."""

import re
import shutil
from itertools import combinations

import msgspec
import polars as pl
import pytest

import orchestrator
from orchestrator import contracts
from orchestrator.columns import PairColumns, RowRoles
from orchestrator.contracts.context import answers_of, bundled, renamed, roles_in
from orchestrator.contracts.method import Combination, Method
from orchestrator.errors import PluginError, StoreError
from orchestrator.figures import Figure, Picture
from orchestrator.interface.exporting import material
from orchestrator.report.html import figures
from orchestrator.report.html.page import sections
from orchestrator.runner.session.progress import LiveRankings
from orchestrator.store import ROLES, RunDirectory, Store
from orchestrator.store.salvage import salvage
from orchestrator.tables import Column, make_table
from orchestrator.units import Plan
from orchestrator.view.item import page as item_page
from tests.core.fakes import Items, digest, make_part, method, nothing
from tests.e2e.runs import CANDIDATES, write_recipe
from tests.inside import fake_server

REFEREE = """
import math
from itertools import combinations

from orchestrator.plugin import (
    Combination, Figure, Method, PairColumns, Picture, Sampling, Summary, make_table, points,
)
from orchestrator.plugin import Column


class Drawn(Summary):
    section = "Referee's own"

    def summarise(self, context):
        return []

    def figures(self, context):
        mean = context.rows["left_wins"].mean()
        columns = [Column("what"), Column("mean", "number", 3)]
        table = make_table("referee", "Means", columns, [["left", mean]])
        picture = Picture("intervals", points(table, 0, 1), "mean of left")
        return [Figure("referee", "Means", f"n = {len(context.rows)}", "It reads.", table, picture)]


class Referee(Method):
    unit_columns = {"item": "str", "category": "str", "left": "str", "right": "str"}
    columns = {"left_wins": "f64", "left_wins_ab": "f64", "left_wins_ba": "f64"}
    scores = {"left_wins": 1}
    pairs = PairColumns(
        preference="left_wins", model_a="left", model_b="right",
        preference_ab="left_wins_ab", preference_ba="left_wins_ba",
    )
    summary = Drawn

    def combinations(self, candidates):
        return [Combination(pair) for pair in combinations(candidates, 2)]

    def identify(self, unit):
        left, right = unit.models
        return {
            "item": unit.item.key, "category": unit.item.category, "left": left, "right": right
        }

    async def evaluate(self, unit, ask):
        texts = [
            (await ask.generate(model, unit.item.messages, Sampling(max_tokens=8))).text
            for model in unit.models
        ]
        a, b = (text.count("e") + len(text) / 100 for text in texts)
        shown_first = 1 / (1 + math.exp(b - a))
        return {
            "left_wins": shown_first, "left_wins_ab": shown_first ** 0.9,
            "left_wins_ba": shown_first ** 1.1,
        }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of the method, whose file is gone since."""
    folder = tmp_path_factory.mktemp("referee")
    (folder / "referee.py").write_text(REFEREE)
    methods = [{"kind": "./referee.py", "candidates": CANDIDATES}]
    with fake_server() as url:
        recipe = write_recipe(
            folder / "r.json", url, n=12, methods=methods, statistics={"n_resamples": 200}
        )
        result = orchestrator.run(recipe, run_dir=folder / "run", allow_code=True)
    assert result.ok
    return folder


@pytest.fixture(scope="module")
def result(folder):
    return orchestrator.load(folder / "run", allow_code=True)


def test_it_is_ranked(result):
    (ranking,) = result.rankings
    assert (ranking.source, ranking.judge, ranking.n_judged) == ("referee", None, 36)
    rows = result.frames["referee"]
    assert {one.model for one in ranking.ratings} == set(CANDIDATES)
    # Bradley-Terry orders models as their mean preferences do where all pairs are complete.
    both = pl.concat(
        [
            rows.select(model="left", value="left_wins"),
            rows.select(model="right", value=1 - pl.col("left_wins")),
        ]
    )
    means = dict(both.group_by("model").agg(pl.col("value").mean()).iter_rows())
    assert [one.model for one in ranking.ratings] == sorted(means, key=lambda m: -means[m])
    for one in ranking.ratings:
        assert one.mean_preference == pytest.approx(means[one.model])
    # Nothing is said of a most probable verdict that the rows do not name.
    assert ranking.mode_ratings == ()
    assert ranking.agreement.decisions is None


def test_its_report_has_its_figures(result):
    found = {part.key: part for part in sections(material(result))}
    keys = [figure.key for part in found.values() for figure in part.figures]
    assert keys[0] == "ratings-referee-all-judges"
    own = found["referee"]
    assert own.title == "Referee's own"
    (figure,) = own.figures
    assert figure.picture is not None
    assert figure.basis == "n = 36"
    (row,) = figure.picture.rows
    assert row["value"] == pytest.approx(result.frames["referee"]["left_wins"].mean())
    # No second figure from its first table.
    assert not found["methods"].figures
    page = result.to_html(result.path / "r.html").read_text()
    assert "Referee&#39;s own" in page


def test_without_its_file_the_run_is_ranked_all_the_same(folder, result):
    (folder / "referee.py").rename(folder / "away.py")
    try:
        for allow_code in (False, True):
            gone = orchestrator.load(folder / "run", allow_code=allow_code)
            # As text: the coverage is nan here, and no nan equals another one.
            assert repr(gone.rankings) == repr(result.rankings)
            keys = [figure.key for part in sections(material(gone)) for figure in part.figures]
            assert "ratings-referee-all-judges" in keys
    finally:
        (folder / "away.py").rename(folder / "referee.py")


def test_roles_that_do_not_fit_the_columns_are_damage(folder, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folder / "run", copy)
    target = RunDirectory.open(copy).store_path
    columns = PairColumns(preference="left", model_a="left", model_b="right")
    with Store.open(target) as store:
        wrong = {"referee": RowRoles(pairs=columns)}
        store.set_meta(ROLES, msgspec.json.encode(wrong).decode())
    with pytest.raises(StoreError, match=r"roles.*'left', a column of str"):
        orchestrator.load(copy)
    # What is put in its place says nothing of roles; the next run does.
    salvage(target)
    with Store.open(target, read_only=True) as store:
        assert store.meta.get(ROLES) is None


def test_its_ranking_forms_while_it_runs():
    pairs = [Combination(pair) for pair in combinations("abc", 2)]
    columns = {"left": "str", "right": "str", "wins": "f64"}
    role = PairColumns(preference="wins", model_a="left", model_b="right")
    part = make_part("fake", method(nothing, pairs, columns=columns, pairs=role), ("a", "b", "c"))
    plan = Plan([part], Items(4), {name: digest(name) for name in "abc"}, seed=0)
    board = LiveRankings(plan)
    for position in range(12):
        left, right = pairs[position % 3].models
        board.ended(position, part, [{"left": left, "right": right, "wins": 0.8}])
    (ranking,) = board.rankings(0.0)
    assert ranking.n_prompts == 4
    assert [one.model for one in ranking.standings] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("PairColumns(preference='wins')", "'pairs' names 'model_a', which is no column"),
        ("PairColumns(preference='item', model_a='a', model_b='b')", "'item', a column of str"),
        (
            "PairColumns(preference='w', model_a='a', model_b='b', estimators=('best',))",
            "no column",
        ),
        ("'left'", "must be PairColumns(...), or None"),
    ],
)
def test_a_role_that_does_not_fit_the_columns_is_a_fault(tmp_path, role, said):
    path = tmp_path / "wrong.py"
    path.write_text(f"""
from orchestrator.plugin import Method, PairColumns
class Wrong(Method):
    unit_columns = {{"item": "str", "a": "str", "b": "str"}}
    columns = {{"w": "f64"}}
    pairs = {role}
    async def evaluate(self, unit, ask):
        return {{}}
""")
    with pytest.raises(PluginError, match=re.escape(said)):
        contracts.load(Method, str(path), allow_code=True)


def test_roles_of_bundled_frames_are_those_of_their_classes():
    known = bundled()
    assert known["judgments"].pairs == contracts.load(Method, "pairwise_ranking").pairs
    assert known["scores"].distribution == contracts.load(Method, "pointwise").distribution
    ranked = {name for name, role in known.items() if role.pairs and role.pairs.ranked}
    assert ranked == {"judgments", "pair_scores", "reward_pairs"}
    # A run without the roles of its frames is one of an older version.
    frames = {"scores": pl.DataFrame(), "judgments": pl.DataFrame(), "mine": pl.DataFrame()}
    assert list(roles_in(frames)) == ["judgments", "scores"]


def test_columns_get_the_names_that_reports_know():
    rows = pl.DataFrame({"item": ["i"], "model_a": ["no"], "left": ["l"]})
    found = renamed(rows, {"model_a": "left"})
    assert found.to_dicts() == [{"item": "i", "model_a": "l"}]
    frames = {"answers": pl.DataFrame({"model": ["m"], "exact_match": [True], "text": ["t"]})}
    assert answers_of(frames, ("model", "exact_match")).rows() == [("m", True)]
    assert answers_of({}, ("model",)).is_empty()


def test_what_a_summary_draws_is_made_safe():
    table = make_table("x", "x", [Column("model")], [["m"]])
    rows = [{"label": "a\x1b[31m" + "b" * 200, "tip": "x\u202ey", "value": 1.0}]
    picture = Picture("intervals", rows, "x\x07", groups=["g\x1b"], options={"order": ["o\x1b"]})
    figure = figures.made_safe(Figure("../K y", "t", "b", "s", table, picture))
    assert figure.key == "k-y"
    shown = figure.picture
    assert shown is not None
    text = str(msgspec.to_builtins(shown))
    assert not re.search(
        r"[\x00-\x1f\u202e]", "".join(map(str, [*shown.rows[0].values(), shown.x]))
    )
    assert "\\x1b" in text
    assert len(shown.rows[0]["label"]) <= 80
    assert shown.groups == ["g\\x1b"]
    assert shown.options == {"order": ["o\\x1b"]}
    with pytest.raises(PluginError, match="intervals, matrix"):
        figures.made_safe(
            Figure("k", "t", "b", "s", table, Picture("pie", []))  # type: ignore[arg-type]
        )


def test_the_viewer_shows_its_rows(result):
    key = result.frames["referee"]["item"][0]
    page = item_page(result.frames, key)
    assert page["judgments"] == []
    (table,) = page["others"]
    assert table["frame"] == "referee"
