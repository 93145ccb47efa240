"""A run that can be read: its frames, and the rankings and tables made of them."""

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orchestrator.clusters import clusters_of
from orchestrator.contracts.context import Context, answers_of, ranked_in
from orchestrator.disk import paths
from orchestrator.errors import OrchestratorError
from orchestrator.frames import FrameFiles
from orchestrator.ranking.analysis import RankingAnalysis, with_trust
from orchestrator.ranking.trust import level_of, of_frames, thresholds_of
from orchestrator.report import rankings
from orchestrator.report.brief import Brief, brief
from orchestrator.report.gate import GateResult
from orchestrator.report.generic import generic_json, generic_markdown
from orchestrator.report.progress import Completeness, Cost
from orchestrator.report.words import plain, ranking_json
from orchestrator.runner.planning.budget import Spent
from orchestrator.runner.planning.stopping import Orders, declared_only, tables_of
from orchestrator.runner.results.frames import NUMBERS, failures
from orchestrator.runner.results.stored import Record
from orchestrator.runner.results.tables import (
    Keeping,
    all_sources,
    followable_of,
    rankings_of,
    summarise,
)
from orchestrator.runner.session.session import Ended
from orchestrator.statistics.trust import Trust, no_ranking
from orchestrator.tables import Table

if TYPE_CHECKING:
    import polars as pl

    from orchestrator.references import Citation

FORMAT: Final = 3
"""Raised when a field of the JSON changes its meaning or goes; new fields may come at any time."""


@dataclass(eq=False, repr=False)
class Result:
    """A run that can be read: its frames and what they say.

    Attributes:
        path: The run directory.
        ended: How the last call ended; None where the run was only loaded.
        completeness: How far the run is, and how many units failed.
        frames: The frames of the current recipe by name, e.g. "answers", "judgments".
        orders: What a stopping rule declared; None where the recipe has none.
        record: The run's record of itself beside its frames, as when these were read.
        allow_code: Whether kinds from outside this project may be imported.
        gate: The verdict on the gates of the recipe, decided at the end of the call that ran it;
            None without gates, after an interrupt, and where the run was only loaded.
        gate_fault: Why there is no verdict, where the run lacks what its gates name.
    """

    path: Path
    ended: Ended | None
    _notes: Callable[[], Sequence[str]]
    _: KW_ONLY
    completeness: Completeness
    allow_code: bool
    frames: FrameFiles
    orders: Orders | None
    record: Record
    gate: GateResult | None = None
    gate_fault: OrchestratorError | None = None

    @property
    def n_left(self) -> int:
        """Units that have no row yet and need one."""
        return self.completeness.left

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved recipe of the last call."""
        return dict(self.record.recipe)

    @property
    def spent(self) -> Spent | None:
        """Resources that all calls of the run took; None where it kept no account."""
        return self.record.spent

    @cached_property
    def rankings(self) -> list[RankingAnalysis]:
        """The ranking of each judge, and over all judges where there are several."""
        found = rankings_of(
            self.frames,
            confidence_level=level_of(self.settings),
            thresholds=thresholds_of(self.settings),
        )
        for at, one in enumerate(found):
            trust = {one.source: one.trust}
            trust = followable_of(trust, self.settings, allow_code=self.allow_code)
            found[at] = with_trust(one, trust[one.source])
        orders = self.orders
        return found if orders is None else [declared_only(one, orders) for one in found]

    @cached_property
    def trust(self) -> dict[str, tuple[Trust, ...]]:
        """Verdicts on the judges of each method, by its name; they state if its rankings hold."""
        found: dict[str, dict[str, Trust]] = {}
        for one in self.rankings:
            found.setdefault(one.source, {}).update({trust.judge: trust for trust in one.trust})
        others = of_frames(
            self.frames,
            clusters_of(self.frames),
            thresholds_of(self.settings),
            level_of(self.settings),
            without=[*ranked_in(self.frames)],
        )
        others = followable_of(others, self.settings, allow_code=self.allow_code)
        return {method: tuple(by_judge.values()) for method, by_judge in found.items()} | others

    @property
    def warnings(self) -> list[str]:
        """Reasons why there is no ranking, of each method with a judge that can't be trusted."""
        said = {method: no_ranking(trusts) for method, trusts in self.trust.items()}
        judged = {one.source for one in self.rankings if one.n_judged}
        # Where nothing was judged the ranking says why, and no judge is to blame.
        said |= {one.source: one.warning for one in self.rankings if one.source not in judged}
        return [f"{method}: {line}" for method, line in said.items() if line]

    @cached_property
    def tables(self) -> list[Table]:
        """Declared orders, then what the methods' summaries and the recipe's analyses say."""
        declared = [] if self.orders is None else tables_of(self.orders, self.rankings)
        keeping = Keeping(self.frames.beside / NUMBERS)
        said = summarise(
            self.frames,
            self.settings,
            allow_code=self.allow_code,
            keeping=keeping,
            run=self.path,
            trust=self.trust,
        )
        return [*declared, *said]

    @cached_property
    def exact_match(self) -> dict[str, float | None]:
        """Share of answers equal to the reference, by model; None where no item has one."""
        answers = answers_of(self.frames, ("model", "exact_match"), as_categories=True)
        if answers.is_empty() or "exact_match" not in answers.columns:
            return {}
        shares = answers.group_by("model", maintain_order=True).mean()
        return dict(shares.select("model", "exact_match").iter_rows())

    @cached_property
    def context(self) -> Context:
        """All methods of the recipe with their frames, to read their scores."""
        return all_sources(self.frames, self.settings, allow_code=self.allow_code, run=self.path)

    @property
    def charts(self) -> dict[str, object]:
        """The charts of the HTML report as Altair objects, by key; needs the extra `[report]`."""
        found: dict[str, Any] = _module("exporting").charts(self)
        return found

    @property
    def failed(self) -> int:
        """Number of units with a failed row."""
        return self.completeness.failed

    @property
    def ok(self) -> bool:
        """True if every unit of the plan has a row and none failed."""
        return self.completeness.total > 0 and not self.n_left and not self.failed

    @property
    def metadata(self) -> dict[str, Any]:
        """Identity and progress of the run, as JSON values."""
        return self.record.metadata(self.path, self.completeness)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Warnings to a reader of the tables, e.g. that several servers answered."""
        return tuple(self._notes())

    @cached_property
    def brief(self) -> Brief:
        """The run in brief, as answers in sentences, with how far to trust them and the cost.

        The terminal, reports, the viewer and notebooks show it first.
        """
        cost, spent, status = None, self.spent, self.record.status
        if spent is not None:
            cost = msgspec.convert(spent, Cost, from_attributes=True)
            models = self.settings.get("models", {}).values()
            if not any(any((one.get("price") or {}).values()) for one in models):
                cost = msgspec.structs.replace(cost, money=None)
        return brief(
            name=str(self.settings.get("name", self.path.name)),
            run=paths.shown(self.path),
            rankings=self.rankings,
            tables=self.tables,
            exact_match=self.exact_match,
            completeness=self.completeness,
            notes=self.notes,
            cost=cost,
            trust=self.trust,
            settings=self.settings,
            # Where no unit failed, no row is looked at for a cause.
            failures=failures(self.frames if self.failed else {}, self.record, n_left=self.n_left),
            stopping="" if status is None else status.values.get("stopping", ""),
        )

    def to_markdown(self) -> str:
        """Return the rankings and tables as Markdown, as `orchestrator report` writes them.

        Returns:
            The text of `--format markdown`.

        Raises:
            OrchestratorError: If the frames can't be read.

        Example:
            >>> Path("results.md").write_text(result.to_markdown())  # doctest: +SKIP
        """
        texts = [self.brief.to_markdown()]
        if self.gate is not None:
            texts.append(self.gate.to_markdown().rstrip())
        for ranking in self.rankings:
            of_ranking = enumerate(rankings.tables_of(ranking, self.exact_match))
            texts += [generic_markdown(one, 3 if place else 2) for place, one in of_ranking]
        texts += [generic_markdown(table) for table in self.tables if table.columns]
        return "\n\n".join(texts) + "\n"

    def to_json(self) -> str:
        """Return the rankings and tables as one JSON object, with the metadata of the run.

        Returns:
            The text of `orchestrator report --format json`.

        Raises:
            OrchestratorError: If the frames can't be read.

        Example:
            >>> json.loads(result.to_json())["rankings"]  # doctest: +SKIP
        """
        document = {
            "format": FORMAT,
            "warning": self.completeness.words(),
            **self.completeness.as_json(),
            "run": plain(self.metadata),
            "brief": self.brief.as_json()["brief"],
            "rankings": [ranking_json(one, self.exact_match) for one in self.rankings],
            "tables": [generic_json(table) for table in self.tables],
        }
        if self.gate is not None:
            document["gate"] = self.gate.as_json()
        return json.dumps(document, indent=2, allow_nan=False) + "\n"

    def to_html(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file.

        Args:
            path: The file; `report.html` in the run directory if omitted.

        Returns:
            The path of the file.

        Raises:
            UsageError: If the file can't be written.

        Example:
            >>> result.to_html("report.html")  # doctest: +SKIP
        """
        written: Path = _module("exporting").write_html(self, None if path is None else Path(path))
        return written

    def tokens(self, item: str) -> "pl.DataFrame":
        """Return the tokens of all texts that were generated or scored for an item.

        They are found as the viewer finds them: by playing the item's units again over the store.

        Args:
            item: Key of the item, as in the frames.

        Returns:
            One row a token, in order: `method`, `model`, `request` (its number in the unit), `kind`
            ("drawn" or "scored"), `turn` and `repeat` of a draw, `position` from 0, `token` (the
            piece of the text that it adds), `id`, `logprob` (natural log), `alternatives` (most
            likely first; null where none were requested) and `missing` (sentences on what was not
            observed, and which setting observes it). One row without a token stands for a text of
            whose tokens nothing is known.

        Raises:
            UsageError: If there is no such item.
            OrchestratorError: If the units can't be played again here.

        Example:
            >>> result.tokens("q1").filter(kind="drawn")["token"].str.join("")  # doctest: +SKIP
        """
        module = importlib.import_module("orchestrator.runner.results.requests")
        replay = module.Replay(self.path, self.frames, allow_code=self.allow_code)
        found: pl.DataFrame = replay.tokens(item)
        return found

    def cite(self) -> "Citation":
        """Return a methods paragraph and BibTeX of what this run used.

        Returns:
            The paragraph (`text`), BibTeX (`bibtex`, `entries`) and the facts as plain data.

        Raises:
            OrchestratorError: If the run can't be read.

        Example:
            >>> Path("run.bib").write_text(result.cite().bibtex)  # doctest: +SKIP
        """
        found: Citation = _module("citing").cite(self)
        return found

    def __repr__(self) -> str:
        """Return the path of the run, how complete it is, and whether its call was interrupted."""
        done = self.completeness
        counts = f"{done.ended:,} of {done.total - done.not_needed:,} units, {done.failed:,} failed"
        is_cut_off = self.ended is not None and self.ended.interrupted
        return f"<Result {str(self.path)!r}: {'interrupted, ' if is_cut_off else ''}{counts}>"

    def _repr_html_(self) -> str:
        page = importlib.import_module("orchestrator.report.html.page")
        return str(page.summary(_module("exporting").material(self)))


def _module(name: str) -> ModuleType:
    # It imports this module, and nothing else needs what it imports.
    return importlib.import_module(f"orchestrator.interface.{name}")
