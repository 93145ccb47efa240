"""Accuracy of judges on a benchmark of known pairs, by subset and in the layout of its paper.

RewardBench (Lambert et al. 2024) counts a pair as right by the preference, ties as half; sections
are means over pairs with math weighted as its code, and the total is the mean of four sections.
JudgeBench (Tan et al. 2024) judges in both orders and counts a pair as right where the two verdicts
are right on balance: both, or one and a tie. LLMBar (Zeng et al. 2024) has the mean accuracy of
both orders, and how often they agree. RewardBench 2 (Malik et al. 2025) counts a prompt as right if
its right answer beats all wrong ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.contracts.context import renamed
from orchestrator.contracts.settings import Winner
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Source,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.judged import order_decisions
from orchestrator.ranking.preferences import SOFT
from orchestrator.ranking.winners import Judged, JudgedWinner, judged_settings
from orchestrator.records import Floats
from orchestrator.statistics.judgments import decided
from orchestrator.statistics.means import share_over
from orchestrator.tables import measured

Rule = Literal["preference", "both_orders", "each_order", "best_of"]
LayoutName = Literal["reward_bench", "reward_bench_2", "judge_bench", "llm_bar"]

_ORDERS: Final = {"p_ab": "prefer_a_ab", "p_ba": "prefer_a_ba"}
_KEYS: Final = ("item", "turn", "judge", "model_a", "model_b")
_RULES: Final[dict[Rule, str]] = {
    "preference": "accuracy: the judge's preference over both orders, ties count half",
    "both_orders": "accuracy: the likeliest verdicts are right on balance of both orders, in both "
    "or in one with a tie in the other; a tie on balance is not right",
    "each_order": "accuracy: mean of the likeliest verdicts of both orders, ties count half",
    "best_of": "accuracy: prompts whose right answer is preferred to every wrong one; if it ties "
    "with some of them, 1 / number of tied answers",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The table of a benchmark's paper.

    Attributes:
        sections: Categories of each section, or how they begin.
        rule: When a pair counts as right.
        weights: Of an item, by category; 1 where left out.
        is_mean_of_sections: Whether the total is the mean of the sections, or over all pairs.
    """

    sections: Mapping[str, tuple[str, ...]]
    rule: Rule
    weights: Mapping[str, float]
    is_mean_of_sections: bool

    @property
    def unit(self) -> str:
        """What is counted."""
        return "prompts" if self.rule == "best_of" else "pairs"

    def section_of(self, category: str) -> str | None:
        """The section of a category; None where it has none."""
        found = (name for name, begins in self.sections.items() if category.startswith(begins))
        return next(found, None)


LAYOUTS: Final[dict[LayoutName, Layout]] = {
    "reward_bench": Layout(
        {
            "Chat": ("alpacaeval-", "mt-bench-easy", "mt-bench-med"),
            "Chat Hard": ("mt-bench-hard", "llmbar-"),
            "Safety": ("refusals-", "xstest-", "donotanswer"),
            "Reasoning": ("math-prm", "hep-"),
        },
        "preference",
        # 447 pairs of math count as the 984 of code.
        {"math-prm": 984 / 447},
        is_mean_of_sections=True,
    ),
    "reward_bench_2": Layout(
        {name: (name,) for name in ("Factuality", "Precise IF", "Math", "Safety", "Focus")},
        "best_of",
        {},
        is_mean_of_sections=True,
    ),
    "judge_bench": Layout(
        {
            "Knowledge": ("mmlu-pro",),
            "Reasoning": ("livebench-reasoning",),
            "Math": ("livebench-math",),
            "Coding": ("livecodebench",),
        },
        "both_orders",
        {},
        is_mean_of_sections=False,
    ),
    "llm_bar": Layout(
        {name: (name,) for name in ("Natural", "Neighbor", "GPTInst", "GPTOut", "Manual")},
        "each_order",
        {},
        is_mean_of_sections=True,
    ),
}


class Config(JudgedWinner):
    """Settings of `judge_benchmark`."""

    winner: Winner = Field(Winner(model="chosen"), description="Source of the better answer.")
    layout: LayoutName | None = Field(
        None,
        description="Benchmark whose table is made. Default: the one whose categories the items "
        "have; without one, a section for each category.",
    )


class _Judged(NamedTuple):
    """One method with one judge.

    Attributes:
        name: What tables call it.
        rows: A row for each pair with a better answer: item, cluster, category, and with 1 where a
            verdict is right and 0.5 for a tie, preference (over both orders) and those of `_ORDERS`
            (null where it was not judged by itself).
        n_missing: Pairs without a judgment.
    """

    name: str
    rows: pl.DataFrame
    n_missing: int

    @property
    def orders(self) -> Floats:
        """The verdicts of both orders, shape (n, 2); nan where there are none."""
        return self.rows.select(*_ORDERS).to_numpy().astype(np.float64)

    def by_prompt(self) -> "_Judged":
        """The same with a row for each prompt, for the rule `best_of`.

        Prompts of which a pair of the right answer was not judged are left out.
        """
        grouped = self.rows.group_by("item", maintain_order=True).agg(
            pl.col(*OVER, "category").first(),
            n=pl.len(),
            lost=(pl.col("preference") == 0.0).any(),
            tied=(pl.col("preference") == 0.5).sum(),
        )
        whole = grouped.filter(pl.col("n") == pl.col("n").max())
        won = pl.when("lost").then(0.0).otherwise(1.0 / (1.0 + pl.col("tied")))
        orders = dict.fromkeys(_ORDERS, pl.lit(None, pl.Float64))
        rows = whole.select("item", *OVER, "category", preference=won, **orders)
        return _Judged(self.name, rows, len(grouped) - len(whole))

    def credits(self, rule: Rule) -> Floats:
        """Return each pair's credit, shape (n,): the preference if orders have no verdicts."""
        if rule in {"preference", "best_of"} or np.isnan(self.orders).any():
            return self.rows["preference"].to_numpy()
        mean: Floats = self.orders.mean(axis=1)
        return mean if rule == "each_order" else (mean > 0.5).astype(np.float64)


class Kind(Analysis[Config]):
    """Accuracy of judges by subset, and the table of the benchmark's paper."""

    def summarise(self, context: Context) -> list[Table]:
        """The paper's table, then every subset."""
        settings = judged_settings(context, self.config.methods, self.config.winner)
        judged = [_judged(context, one) for one in settings]
        categories = sorted({name for one in judged for name in one.rows["category"].to_list()})
        layout = _layout(self.config.layout, categories)
        if layout.rule == "best_of":
            judged = [one.by_prompt() for one in judged]
        return [_sections(judged, layout, context), _categories(judged, layout, context)]


def _layout(name: LayoutName | None, categories: Sequence[str]) -> Layout:
    if name is not None:
        return LAYOUTS[name]
    for layout in LAYOUTS.values():
        if categories and all(layout.section_of(category) for category in categories):
            return layout
    return Layout(
        {name: (name,) for name in categories}, "preference", {}, is_mean_of_sections=False
    )


def sections_of(categories: Sequence[str]) -> dict[str, str]:
    """Return the section of each category in the paper of its benchmark; else the category."""
    layout = _layout(None, categories)
    return {category: layout.section_of(category) or category for category in categories}


def _judged(context: Context, one: Judged) -> _Judged:
    pairs, sign = one.known.pairs, one.known.truth
    preference = decided(2.0 * pairs.values(SOFT) - 1.0)
    orders = 0.5 + 0.5 * sign[:, None] * _by_order(context, one.source, pairs.rows)
    rows = pairs.rows.select(
        "item",
        *OVER,
        pl.col("category").fill_null("all"),
        preference=pl.Series(0.5 + 0.5 * sign * preference),
        **{name: pl.Series(column) for name, column in zip(_ORDERS, orders.T, strict=True)},
    )
    return _Judged(one.name, rows, pairs.n_missing)


def _by_order(context: Context, source: Source, rows: pl.DataFrame) -> Floats:
    """The likeliest verdict of judged pairs in each order, shape (n, 2): 1 for A, -1 for B.

    nan where a method does not judge each order by itself.
    """
    role = source.method.pairs
    named = {} if role is None else role.columns()
    if not {*_ORDERS, *_ORDERS.values()} <= set(named):
        return np.full((len(rows), 2), np.nan)
    columns = {name: named[name] for name in (*_KEYS, *_ORDERS, *_ORDERS.values()) if name in named}
    asked = context.rows_of(source, ["item", *columns.values()], as_categories=True)
    asked = renamed(asked, columns)
    on = [name for name in _KEYS if name in asked.columns]
    verdicts = asked.select(*on, *_ORDERS, *_ORDERS.values())
    joined = rows.select(on).join(verdicts, on=on, how="left", maintain_order="left")
    return np.column_stack([order_decisions(joined, order) for order in _ORDERS])


def _sections(judged: Sequence[_Judged], layout: Layout, context: Context) -> Table:
    """A row for each judge: the paper's total, then a column for each of its sections."""
    total = "mean of sections" if layout.is_mean_of_sections else "all"
    shares = (Column(name, "percent") for name in (total, *layout.sections))
    columns = [Column("judge"), *shares, Column(layout.unit, "count")]
    lines: list[list[Cell]] = []
    outside = set()
    for one in judged:
        section = np.array([layout.section_of(name) or "" for name in one.rows["category"]])
        outside |= {name for name in one.rows["category"] if layout.section_of(name) is None}
        weights = np.array([layout.weights.get(name, 1.0) for name in one.rows["category"]])
        credit, prompts = one.credits(layout.rule), codes(one.rows[CLUSTER])
        cells: list[Cell] = []
        even = np.where(section == "", 0.0, weights)
        for name in layout.sections:
            mine = section == name
            cells.append(_share(credit, np.where(mine, weights, 0.0), prompts, context))
            if layout.is_mean_of_sections and mine.any():
                even[mine] /= weights[mine].sum() / mine.sum()
                even[mine] /= mine.mean() * len(layout.sections)
        has_all = all((section == name).any() for name in layout.sections)
        overall: Cell = Measured(None, why="a section has no pair")
        if has_all or not layout.is_mean_of_sections:
            overall = _share(credit, even, prompts, context)
        lines.append([one.name, overall, *cells, int((section != "").sum())])
    notes = [_RULES[layout.rule], "intervals over prompts, for this judge"]
    if layout.rule in {"both_orders", "each_order"}:
        single = [one.name for one in judged if np.isnan(one.orders).any()]
        if single:
            notes.append(f"{', '.join(single)}: no verdict by order, the preference counts")
    notes += [
        f"{one.name}: {one.n_missing:,} {layout.unit} were not judged"
        for one in judged
        if one.n_missing
    ]
    if layout.weights:
        weighed = ", ".join(f"{name} {weight:.2f}" for name, weight in layout.weights.items())
        notes.append(f"weights of pairs other than 1, as published: {weighed}")
    if outside:
        notes.append(f"in no section: {', '.join(sorted(outside))}")
    title = "Accuracy of judges by section"
    basis = prompt_words(judged[0].rows) if judged else ""
    return make_table("judge_benchmark", title, columns, lines, basis=basis, notes=notes)


def _share(credit: Floats, weights: Floats, prompts: NDArray[np.int64], context: Context) -> Cell:
    used = weights > 0.0
    if not used.any():
        return Measured(None, why="no pair")
    # Weights of mean 1: an interval's effective number of prompts is not that of the scale.
    weight = weights[used] / weights[used].mean()
    found = share_over(credit[used], prompts[used], context.confidence_level, weight)
    return measured(found)


def _categories(judged: Sequence[_Judged], layout: Layout, context: Context) -> Table:
    """Every category: accuracy by the preference, and what the two orders say."""
    columns = (
        Column("judge"),
        Column("subset"),
        Column(layout.unit, "count"),
        *table_columns("accuracy: percent | right in both orders: percent | orders agree: percent"),
    )
    lines: list[list[Cell]] = []
    for one in judged:
        categories = one.rows["category"].to_numpy()
        prompts, orders = codes(one.rows[CLUSTER]), one.orders
        for name in dict.fromkeys(sorted(categories, key=lambda name: _place(layout, name))):
            mine = (categories == name).astype(np.float64)
            cells: list[Cell] = [Measured(None, why="no verdict by order")] * 2
            if not np.isnan(orders[categories == name]).any():
                both = (orders == 1.0).all(axis=1).astype(np.float64)
                agree = (orders[:, 0] == orders[:, 1]).astype(np.float64)
                cells = [_share(values, mine, prompts, context) for values in (both, agree)]
            share = _share(one.credits(layout.rule), mine, prompts, context)
            lines.append([one.name, str(name), int(mine.sum()), share, *cells])
    notes = [_RULES[layout.rule]]
    return make_table(
        "judge_benchmark.subsets", "Accuracy of judges by subset", columns, lines, notes=notes
    )


def _place(layout: Layout, category: str) -> tuple[int, str]:
    names = list(layout.sections)
    section = layout.section_of(category)
    return (names.index(section) if section is not None else len(names), category)
