"""Run directories made of frames, without a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import yaml

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import answers
from orchestrator.runner.results.frames import version, write_mark
from orchestrator.store import RunDirectory, Store

_NAMES = {pl.String: "str", pl.Float64: "f64", pl.Int64: "i64", pl.Boolean: "bool"}


def _kind(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"list[{_NAMES[type(dtype.inner)]}]"  # type: ignore[index]
    return _NAMES[type(dtype)]


def make_run(
    path: Path,
    frames: Mapping[str, pl.DataFrame],
    settings: Mapping[str, Any],
    *,
    n_left: int = 0,
) -> Path:
    """A run whose exported frames are these; its store holds the plan alone, of units left to do.

    Where there is one at `path`, a new one is begun beside it, as by `--fresh`.
    """
    rows = [frame.select("item") for frame in frames.values() if "item" in frame.columns]
    if "items" not in frames and rows:
        keys = pl.concat(rows).unique(maintain_order=True)["item"]
        frames = {"items": items_frame(len(keys)).with_columns(item=keys), **frames}
    with (
        RunDirectory.lock(path, fresh=True) as directory,
        Store.open(directory.store_path) as store,
    ):
        directory.write_revision(
            yaml.safe_dump({"orchestrator": "0", "identities": {}, "recipe": dict(settings)})
        )
        methods = {name: frame for name, frame in frames.items() if name != "items"}
        schemas = {
            name: {column: _kind(dtype) for column, dtype in frame.schema.items()}
            for name, frame in methods.items()
        }
        store.set_meta("frames", msgspec.json.encode(schemas).decode())
        store.set_meta("units", str(n_left))
        store.open_plan(b"0" * 16, n_left)
        store.flush()
        for name, frame in frames.items():
            frame.write_parquet(directory.results / f"{name}.parquet")
        paths = [directory.results / f"{name}.parquet" for name in methods]
        write_mark(directory.results / ".exported", version(store), paths)
    return directory.path


def items_frame(n: int) -> pl.DataFrame:
    """Items named i0, i1, …, of three categories, the third prompt with a rare word."""
    numbers = pl.int_range(n, eager=True)
    return pl.DataFrame(
        {
            "item": "i" + numbers.cast(pl.String),
            "category": "c" + (numbers % 3).cast(pl.String),
            "prompt": pl.Series([f"What is {k} and {k * 7}?" for k in range(n)]),
        }
    ).with_columns(
        pl.lit(None, dtype=pl.String).alias(name)
        for name in (
            "followups",
            "reference",
            "references",
            "fields",
            "messages",
            "cluster",
            "place",
            "same_as",
        )
    )


def answers_frame(n: int, models: tuple[str, ...] = ("one", "two")) -> pl.DataFrame:
    """Answers of a few hundred characters, all different."""
    rows = [
        {
            "method": "answers",
            "item": f"i{k}",
            "category": f"c{k % 3}",
            "model": model,
            "turn": 1,
            "prompt": f"What is {k} and {k * 7}?",
            "text": f"{model} says {k * 31} because of " + "several good reasons " * 12 + str(k),
            "mean_logprob": -(k % 17) / 10,
            "status": "failed" if k % 50 == 49 and model == "two" else "ok",
            "cause": "timeout" if k % 50 == 49 and model == "two" else None,
        }
        for k in range(n)
        for model in models
    ]
    columns = {"method": "str", **schema_of(answers.Kind)}
    lines = [dict.fromkeys(columns) | row for row in rows]
    return pl.DataFrame(lines, schema=polars_schema(columns), orient="row")


SETTINGS: dict[str, Any] = {
    "name": "made",
    "seed": 0,
    "models": {"one": {}, "two": {}},
    "methods": [{"kind": "answers"}],
}


def made(path: Path, n: int = 60) -> Path:
    """A run of `n` items with two answers each."""
    return make_run(path, {"items": items_frame(n), "answers": answers_frame(n)}, SETTINGS)
