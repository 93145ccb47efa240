"""Basis of a run: rows by method, what is missing and why, requests, servers, settings."""

import re
from collections.abc import Mapping
from operator import itemgetter
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from orchestrator import numbers
from orchestrator.figures import Figure
from orchestrator.frames import lazy_of, names_of
from orchestrator.report.html.figures import Material
from orchestrator.tables import Table, counted_words, make_table, table_columns

_OK: Final = "ok"
_HASH: Final = 12
_HASHED: Final = 32
# Paths of Unix and of Windows, from the root and with a folder.
_ABSOLUTE: Final = re.compile(r"(?:file:/)?(?:/|[A-Za-z]:[\\/])[^\s/\\]+[/\\][^\n]*\Z")


def coverage(material: Material) -> Figure:
    """Rows of each method, and why the others are missing."""
    counts: dict[tuple[str, str], int] = {}
    for one in material.frames:
        if "status" not in names_of(material.frames, one):
            continue
        cause = (
            pl.when(pl.col("status") == _OK)
            .then(pl.lit(_OK))
            .otherwise(pl.col("cause").fill_null("unknown"))
        )
        query = lazy_of(material.frames, one).group_by("method", cause.alias("why")).len()
        found = query.sort("method", "why").collect(engine="streaming")
        for method, why, n in found.iter_rows():
            counts[str(method), str(why)] = n
    methods = list(dict.fromkeys(method for method, _ in counts))
    rows: list[list[Any]] = []
    for method in methods:
        parts = {why: n for (one, why), n in counts.items() if one == method}
        total, good = sum(parts.values()), parts.pop(_OK, 0)
        causes = ", ".join(f"{why} {n:,}" for why, n in sorted(parts.items(), key=lambda p: -p[1]))
        rows.append([method, total, good, total - good, good / total, causes or numbers.UNDEFINED])
    columns = table_columns(
        "method | rows: count | with a value: count | failed: count | share: percent", "causes"
    )
    table = make_table("coverage-of-rows", "Rows by method", columns, rows)
    prompts: list[tuple[int, int | None]] = [(0, None)]
    for frame in material.frames:
        if "item" in names_of(material.frames, frame):
            items = lazy_of(material.frames, frame).select(pl.col("item").unique())
            named = items.collect(engine="streaming")["item"]
            prompts.append(material.context.clusters.counted(named))
    n_items = counted_words(*max(prompts, key=itemgetter(0)))
    left = f" · {material.n_left:,} units remain" if material.n_left else ""
    basis = f"n = {n_items} · counts{left}"
    says = (
        "A failure is a missing value: it is never counted as a score or a tie, and always "
        "reported."
    )
    return Figure("coverage-of-rows", table.title, basis, says, table)


def requests(material: Material) -> Table:
    """Tabulate the requests of the last call that sent any."""
    counted = ("done", "failed", "retried", "prompt_tokens", "completion_tokens")
    models = material.progress.get("models") or ()
    rows = [[one.get("name", ""), *(one.get(name, 0) for name in counted)] for one in models]
    columns = table_columns(
        "model | answered: count | failed: count | retries: count | prompt tokens: count",
        "tokens generated: count",
    )
    return make_table("requests", "Requests of the last call that sent requests", columns, rows)


def lost(material: Material) -> Table:
    """Requests that failed, by model and cause."""
    rows = [(one.model, one.cause, one.n, one.last_message) for one in material.lost]
    columns = table_columns("model | cause | requests: count | e.g.")
    return make_table("failed-requests", "Requests that failed", columns, rows)


def models(material: Material) -> Table:
    """Each model: what it is and what answered."""
    settings = material.settings.get("models") or {}
    rows = []
    for model, identity in material.identities.items():
        given = settings.get(model) or {}
        source = given.get("weights") or given.get("answers") or given.get("model") or ""
        exact = " · ".join(f"{key} {_short(value)}" for key, value in identity.items())
        served = "; ".join(material.servers.get(model, ())) or "no requests"
        rows.append([model, without_folders(str(source)), served, exact])
    columns = table_columns("model | source | answered by | identity")
    return make_table("models", "Models and servers", columns, rows)


def epochs(material: Material) -> Table:
    """Rows by the latest server that they rest on; none where no model had another one."""
    rows = [
        (method, str(epoch), n, n / sum(of_method.values()))
        for method, of_method in material.epochs().items()
        for epoch, n in of_method.items()
    ]
    columns = table_columns("method | server_epoch | rows: count | share: percent")
    return make_table("server-epochs", "Rows by latest server", columns, rows)


def probes(material: Material) -> Table:
    """Tabulate the findings of the probes of all models."""
    rows = [
        [model, f"{of.backend} {of.version}".rstrip(), one.name.replace("_", " "), one.value,
         one.said]
        for model, of in material.probes.items() for one in of.findings
    ]  # fmt: skip
    columns = table_columns("model | server | question | answer | observed")
    return make_table("probes", "Probes of the servers", columns, rows)


def _short(value: str) -> str:
    is_hash = len(value) >= _HASHED and all(c in "0123456789abcdef" for c in value)
    return value[:_HASH] if is_hash else value


def facts(material: Material) -> list[tuple[str, str]]:
    """Return the settings of the run as pairs of words."""
    settings = material.settings
    statistics = settings.get("statistics") or {}
    n_most = settings.get("limit")
    limit = "" if n_most is None else f"of which the first {numbers.counted(n_most, 'item')} alone"
    found = [
        ("Recipe", material.name),
        ("Run", PurePath(material.where).name),
        ("Last sent", material.at),
        ("Dataset", ", ".join(part for part in (_plain(settings.get("dataset")), limit) if part)),
        ("Methods", ", ".join(source.name for source in material.context.sources)),
        ("Models", ", ".join(material.models)),
        ("Seed", str(settings.get("seed", 0))),
        (
            "Intervals",
            f"{numbers.level(statistics.get('confidence_level', 0.95))}, "
            f"{statistics.get('n_resamples', 2000):,} resamples",
        ),
        ("Version", f"orchestrator {material.version}"),
    ]
    return [(label, value) for label, value in found if value]


def _plain(value: object) -> str:
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    parts = [
        f"{key} {_words(inner)}"
        for key, inner in value.items()
        if inner not in (None, "", (), [], {})
    ]
    return ", ".join(parts)


def _words(value: object) -> str:
    """A setting in words, its parts in brackets."""
    if isinstance(value, Mapping):
        return f"({', '.join(f'{key} {_words(inner)}' for key, inner in value.items())})"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_words, value))})"
    return without_folders(str(value))


def without_folders(text: str) -> str:
    """The text, of an absolute path its last part only: a reader elsewhere has no such folder."""
    return f"\N{HORIZONTAL ELLIPSIS}/{PurePath(text).name}" if _ABSOLUTE.match(text) else text
