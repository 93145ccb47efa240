"""The answers of a run, item by item, with what the judges made of each."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.columns import ITEMS
from orchestrator.contracts.context import Source, roles_in, there
from orchestrator.disk import columnar
from orchestrator.errors import UsageError
from orchestrator.frames import FrameFiles
from orchestrator.report.html.page import telling_worth
from orchestrator.report.text import page_line, safe_block

_PREVIEW: Final = 1_200
# Nobody wins by less than is shown.
_DIGITS: Final = 2
_MOST_CELLS: Final = 20_000
_TEXTS: Final[dict[str, type[pl.DataType]]] = {
    "index": pl.UInt32,
    "item": pl.String,
    "model": pl.String,
    "text": pl.String,
    "n": pl.UInt32,
    "cut": pl.Boolean,
    "cause": pl.String,
    "digest": pl.UInt64,
}
_WORTH: Final = {"item": pl.String, "model": pl.String, "worth": pl.Float64}
_LENGTHS: Final = {"shorter": pl.Expr.lt, "longer": pl.Expr.gt}


def named(shown: str, names: Sequence[str]) -> str:
    """Return the name that is shown like this; empty for an empty one.

    Raises:
        UsageError: If there is none.
    """
    known = {page_line(name): name for name in names}
    if shown and shown not in known:
        raise UsageError(f"this run has no {page_line(shown)!r:.80}; it has {', '.join(known)}")
    return known.get(shown, "")


class Answers:
    """Each model's answer to each item, and its worth by each method.

    A worth is P(better than the other models), averaged over them, judges and turns, where a method
    compares pairs; else the mean of the method's first score.

    Attributes:
        models: Who answered, in the order of the recipe.
        by: The methods that tell what an answer is worth: those of pairs first.
    """

    def __init__(
        self,
        frames: FrameFiles,
        keys: pl.Series,
        sources: Sequence[Source],
        names: Sequence[str],
        folder: Path,
    ) -> None:
        self._frames = frames
        self._keys = keys
        self._numbers = keys.to_frame("item").with_row_index("index").lazy()
        self._folder = folder
        roles = roles_in(frames)
        self._answered = [name for name, one in roles.items() if one.answers is not None]
        self._pairs = {name: one.pairs for name, one in roles.items() if one.pairs is not None}
        self._sources = {one.name: one for one in telling_worth(frames, sources)}
        self.by = tuple(self._sources)
        found = {
            str(name)
            for frame in self._answered
            for name in self._read(frame).select("model").unique().collect()["model"]
        }
        self.models = (*(name for name in names if name in found), *sorted(found - set(names)))
        self._kept: dict[str, pl.DataFrame] = {}
        # Two threads would write the texts to one file.
        self._writing = threading.Lock()
        self._texts: pl.LazyFrame | None = None

    def page(self, indexes: NDArray[np.int64], by: str) -> list[list[dict[str, object]]]:
        """Return the answers to these items by model; an empty cell where there is none.

        A cell has `text`, `n` (characters), `cut` (whether it ended at the limit of tokens),
        `failed` (a cause, or None), `worth` in [0, 1] or a score, and `best`.
        """
        wanted = pl.Series("index", indexes[: max(1, _MOST_CELLS // max(1, len(self.models)))])
        cells = self.texts(wanted).collect()
        if by in self.by:
            values = self.worth(by, wanted).select("index", "model", "worth", "best")
            cells = cells.join(values, on=["index", "model"], how="left")
        found: dict[tuple[int, str], dict[str, Any]] = {
            (row["index"], row["model"]): {
                "text": None if row["text"] is None else safe_block(row["text"], _PREVIEW),
                "n": row["n"],
                "cut": row["cut"],
                "failed": row["cause"] and page_line(row["cause"]),
                "worth": row.get("worth"),
                "best": row.get("best"),
            }
            for row in cells.iter_rows(named=True)
        }
        return [[found.get((at, model), {}) for model in self.models] for at in wanted.to_list()]

    def scale(self, by: str) -> list[float]:
        """Return the ends of what an answer can be worth; of scores, of what one was worth."""
        if by not in self.by or self._sources[by].frame in self._pairs:
            return [0.0, 1.0]
        values = self.worth(by)["worth"].to_numpy()
        return [float(values.min()), float(values.max())] if values.size else []

    def between(self, index: int) -> list[dict[str, object]]:
        """Return P(model better than other) on an item by each method that compares pairs.

        It is the mean over judges and turns.
        """
        found: list[dict[str, object]] = []
        for by in self.by:
            if self._sources[by].frame in self._pairs:
                sides = self._sides(by, self._keys.gather([index])).group_by("model", "other")
                means = sides.agg(p=pl.col("value").mean() + 0.5).sort("model", "other").collect()
                rows = [(page_line(one), page_line(two), p) for one, two, p in means.iter_rows()]
                found.append({"method": page_line(by), "rows": rows})
        return found

    def lost(self, given: Mapping[str, str]) -> NDArray[np.bool_]:
        """Return for each item whether a model's answer is worth less than that of another.

        Args:
            given: Names, as they are shown, of models `of` (who lost) and `to` (who won; any where
                empty), the method `by`, and `than`: "shorter" or "longer" where the loser's
                answer is to be so.

        Raises:
            UsageError: If there is no such model, method or length.
        """
        than = given.get("than", "")
        of, to = (named(given.get(name, ""), self.models) for name in ("of", "to"))
        by = named(given.get("by", ""), self.by) or next(iter(self.by), "")
        if not of or not by:
            raise UsageError("name the model that lost as `of`; a method must compare or rate them")
        against = pl.col("other") == to if to else pl.lit(value=True)
        sides = self._sides(by).filter((pl.col("model") == of) & against)
        losers = sides.group_by("item", "other").agg(pl.col("value").mean())
        losers = losers.filter(pl.col("value").round(_DIGITS) < 0)
        if than:
            if than not in _LENGTHS:
                raise UsageError(f"answers are shorter or longer, not {than!r:.80}")
            n = self.texts().select("item", "model", "n")
            mine = n.filter(pl.col("model") == of).select("item", "n")
            losers = losers.join(mine, on="item").join(
                n.rename({"model": "other", "n": "n_other"}), on=["item", "other"]
            )
            losers = losers.filter(_LENGTHS[than](pl.col("n"), pl.col("n_other")))
        return self._found(losers)

    def changed(self, since: "Answers") -> NDArray[np.bool_]:
        """Return for each item whether an answer, or who is best, differs from another run."""
        keyed = [one.texts().select("item", "model", "digest") for one in (self, since)]
        texts = keyed[0].join(keyed[1], on=["item", "model"], suffix="_b")
        changed = [texts.filter(pl.col("digest").ne_missing(pl.col("digest_b"))).select("item")]
        # Of several methods that both have, the first decides who is best.
        for name in [name for name in self.by if name in since.by][:1]:
            best = [
                one.worth(name).lazy().filter(pl.col("best")).select("item", "model")
                for one in (self, since)
            ]
            both = best[0].join(best[1], on="item", how="full", suffix="_b", coalesce=True)
            known = since.worth(name).lazy().select("item").unique()
            both = both.filter(pl.col("model").ne_missing(pl.col("model_b")))
            changed.append(both.join(known, on="item", how="semi").select("item"))
        return self._found(pl.concat(changed))

    def column(self, name: str, by: str = "") -> pl.Series | None:
        """Return a column beside the table of items, one value an item; None if there is none.

        Args:
            name: "prompt", or "answer of" or "worth of" a model, named as it is shown.
            by: The method that tells the worth; the first where empty.

        Raises:
            UsageError: If there is no such model or method.
        """
        kind, _, shown = name.partition(" of ")
        if name == "prompt" and ITEMS in self._frames:
            rows = self._frames.scan(ITEMS).select("item", value="prompt")
        elif kind in ("answer", "worth") and shown and self.models:
            is_its = pl.col("model") == named(shown, self.models)
            if kind == "worth":
                by = named(by, self.by) or next(iter(self.by), "")
                worth = self.worth(by) if by else pl.DataFrame(schema=_WORTH)
                rows = worth.lazy().filter(is_its).select("item", value="worth")
            else:
                parts = [self._read(one, whole=True).filter(is_its) for one in self._answered]
                rows = pl.concat(parts).unique("item", keep="first", maintain_order=True)
                rows = rows.select("item", value="text")
        else:
            return None
        table = self._keys.to_frame("item").lazy()
        return table.join(rows, on="item", how="left", maintain_order="left").collect()["value"]

    def _found(self, items: pl.LazyFrame) -> NDArray[np.bool_]:
        """One truth value an item: whether it is among these."""
        there = items.select("item").unique().collect()["item"]
        return self._keys.is_in(there.implode()).to_numpy()

    def texts(self, indexes: pl.Series | None = None) -> pl.LazyFrame:
        """Return the beginning of each answer to the last turn, one row an item and model.

        They are in a file, since they are many, which is written when those of all items are first
        wanted; those with some `indexes` wait for no others: the first screen is soon there.
        """
        if indexes is not None and self._texts is None:
            return self._begun(self._keys.gather(indexes))
        with self._writing:
            if self._texts is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / "answers.arrow"
                self._begun().collect().write_ipc(path, compression="uncompressed")
                self._texts = columnar.scan_arrow(path)
            found = self._texts
        return found if indexes is None else found.filter(pl.col("index").is_in(indexes.implode()))

    def _begun(self, keys: pl.Series | None = None) -> pl.LazyFrame:
        """The same of the items with these keys alone; of all where None."""
        parts = [self._read(name, keys=keys) for name in self._answered]
        if not parts:
            return pl.LazyFrame(schema=_TEXTS)
        rows = pl.concat(parts).unique(["item", "model"], keep="first", maintain_order=True)
        found = self._numbers.join(rows, on="item", maintain_order="left")
        return found.select(pl.col(name).cast(kind) for name, kind in _TEXTS.items())

    def _read(
        self, frame: str, *, whole: bool = False, keys: pl.Series | None = None
    ) -> pl.LazyFrame:
        role = roles_in(self._frames)[frame].answers
        columns = there(self._frames, frame, role.columns() if role is not None else {})
        rows = _only(self._frames.scan(frame), keys)
        names = set(rows.collect_schema())
        text = pl.col(columns["text"])
        turn = pl.col(columns["turn"]) if "turn" in columns else pl.lit(1)
        blank = pl.lit(None, dtype=pl.String)
        ended = pl.col("finish_reason") if "finish_reason" in names else blank
        cause = pl.col("cause") if "cause" in names else blank
        return rows.sort(turn, descending=True, maintain_order=True).select(
            "item",
            model=pl.col(columns["model"]) if "model" in columns else pl.lit(""),
            text=text if whole else text.str.slice(0, _PREVIEW + 1),
            n=text.str.len_chars(),
            cut=(ended == "length").fill_null(value=False),
            cause=cause,
            digest=text.hash(),
        )

    def _good(self, by: str, keys: pl.Series | None = None) -> pl.LazyFrame:
        """Rows of a method that did not fail, of all items or of those with these keys."""
        rows = _only(self._frames.scan(self._sources[by].frame), keys)
        return rows.filter((pl.col("method") == by) & (pl.col("status") == "ok"))

    def _sides(self, by: str, keys: pl.Series | None = None) -> pl.LazyFrame:
        """Rows of one model against another: item, model, other, and a value that is > 0 for it."""
        frame = self._sources[by].frame
        if frame in self._pairs:
            rows = self._good(by, keys)
            columns = there(self._frames, frame, self._pairs[frame].columns())
            a, b, p = (pl.col(columns[name]) for name in ("model_a", "model_b", "prefer_a"))
            sides = [
                rows.select("item", model=one, other=two, value=value)
                for one, two, value in ((a, b, p - 0.5), (b, a, 0.5 - p))
            ]
            return pl.concat(sides).filter(pl.col("value").is_finite())
        means = self._means(by, keys)
        both = means.join(means.rename({"model": "other", "mean": "mean_b"}), on="item")
        both = both.filter(pl.col("model") != pl.col("other"))
        return both.select("item", "model", "other", value=pl.col("mean") - pl.col("mean_b"))

    def _means(self, by: str, keys: pl.Series | None = None) -> pl.LazyFrame:
        """The first score of a method, times its sign, by item and model."""
        (score, sign), *_ = self._sources[by].scores.items()
        value = pl.col(score).cast(pl.Float64) * sign
        return (
            self._good(by, keys)
            .filter(value.is_finite())
            .group_by("item", "model")
            .agg(mean=value.mean())
        )

    def worth(self, by: str, indexes: pl.Series | None = None) -> pl.DataFrame:
        """Return the worth of each answer by a method; best is one that no other reaches.

        With `indexes` it is that of the answers to these items.
        """
        if by not in self._kept:
            if indexes is not None:
                return self._scores(by, self._keys.gather(indexes))
            self._kept[by] = self._scores(by)
        found = self._kept[by]
        return found if indexes is None else found.filter(pl.col("index").is_in(indexes.implode()))

    def _scores(self, by: str, keys: pl.Series | None = None) -> pl.DataFrame:
        shown = pl.col("worth").round(_DIGITS)
        if self._sources[by].frame in self._pairs:
            mean = pl.col("value").mean() + 0.5
            worth = self._sides(by, keys).group_by("item", "model").agg(worth=mean)
            is_won = shown > 0.5
        else:
            worth = self._means(by, keys).rename({"mean": "worth"})
            is_won = pl.lit(value=True)
        most = shown.max().over("item")
        is_alone = (shown == most).sum().over("item") == 1
        found = worth.with_columns(best=(shown == most) & is_alone & is_won)
        return self._numbers.join(found, on="item").collect()


def _only(rows: pl.LazyFrame, keys: pl.Series | None) -> pl.LazyFrame:
    return rows if keys is None else rows.filter(pl.col("item").is_in(keys.implode()))
