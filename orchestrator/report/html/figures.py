"""Material of a report, and figures as pages draw them, made safe here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, get_args

import polars as pl

from orchestrator.contracts.context import Context
from orchestrator.errors import PluginError
from orchestrator.figures import Figure, Kind, key
from orchestrator.frames import counted_by, names_of
from orchestrator.probing.record import ProbeRecord
from orchestrator.report.brief import Brief
from orchestrator.report.text import page_line, safe_names
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.store import FailureCount
from orchestrator.tables import Table

_MAX_NAME: Final = 40
_NAMES: Final = frozenset({"label", "group", "row", "column", "part", "x"})
_NAMED_OPTIONS: Final = frozenset({"order", "columns"})


def made_safe(figure: Figure) -> Figure:
    """Return a figure as a page may draw it, its names cut so that no two look the same.

    Raises:
        PluginError: If its picture is of no known kind.
    """
    picture = figure.picture
    if picture is not None:
        if picture.kind not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            raise PluginError(f"a picture is of the kind {picture.kind!r:.40}; there are {kinds}")
        lists = {"groups": [*map(str, picture.groups)]} | {
            option: [*map(str, picture.options[option])]
            for option in _NAMED_OPTIONS & picture.options.keys()
        }
        cells = (row[column] for row in picture.rows for column in _NAMES & row.keys())
        names = chain(*lists.values(), (one for one in cells if isinstance(one, str)))
        called = safe_names(names, _MAX_NAME, joined=True)

        def safe(column: str, value: object) -> object:
            if not isinstance(value, str):
                return value
            return called[value] if column in _NAMES else page_line(value)

        cut = {what: [called[name] for name in listed] for what, listed in lists.items()}
        picture = replace(
            picture,
            rows=[
                {column: safe(column, value) for column, value in row.items()}
                for row in picture.rows
            ],
            x=page_line(picture.x),
            y=page_line(picture.y),
            groups=cut.pop("groups"),
            options={**picture.options, **cut},
        )
    return replace(figure, key=key(figure.key), picture=picture)


@dataclass(frozen=True, slots=True)
class Material:
    """A run as the report sees it.

    Attributes:
        name: Of the recipe.
        where: The run directory, as it was named.
        at: When something was last sent, in words; empty where that is not known.
        version: Of this program, as of the last call.
        settings: The resolved recipe.
        identities: What each model is, as fields in words, by model.
        servers: What answered, in words, by model.
        probes: What its server was found to do, by model.
        progress: What the last call that sent something counted.
        frames: By name.
        rankings: By method and judge.
        tables: Of summaries and analyses.
        context: The methods of the recipe, to read their scores.
        lost: Requests that failed, the most frequent first.
        n_left: Units without a row.
        brief: The run in brief.
        epochs: How many rows of each method rest on which epoch of servers; empty where there is
            only one.
    """

    name: str
    where: str
    at: str
    version: str
    settings: Mapping[str, Any]
    identities: Mapping[str, Mapping[str, str]]
    servers: Mapping[str, Sequence[str]]
    progress: Mapping[str, Any]
    frames: Mapping[str, pl.DataFrame]
    rankings: Sequence[RankingAnalysis]
    tables: Sequence[Table]
    context: Context
    lost: Sequence[FailureCount] = ()
    n_left: int = 0
    probes: Mapping[str, ProbeRecord] = field(default_factory=dict)
    brief: Brief = field(default_factory=Brief)
    epochs: Callable[[], Mapping[str, Mapping[int, int]]] = dict

    @property
    def models(self) -> list[str]:
        """Models that answer, in the order of their rows."""
        found: dict[str | None, None] = {}
        for frame in self.frames:
            for name in ("model", "model_a", "model_b"):
                if name in names_of(self.frames, frame):
                    found |= {row[name]: None for row in counted_by(self.frames, frame, [name])}
        return [name for name in found if name is not None]
