"""Selection of a snapshot's items, and the export of the selected ones as a file."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import polars as pl
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.columns import ITEMS
from orchestrator.errors import OrchestratorError, RunDirectoryError, UsageError
from orchestrator.report.export import frame_text
from orchestrator.report.text import page_line, safe_block
from orchestrator.runner.results.notes import Note, add_note
from orchestrator.view.answers import named
from orchestrator.view.item import MAX_TEXT, page
from orchestrator.view.items import CHANGE, Items, Rows, Wanted
from orchestrator.view.labelling import Sheet
from orchestrator.view.library import Library, Snapshot, compared

_EXPORTS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def selected(library: Library, snapshot: Snapshot, wanted: Wanted) -> tuple[Items, Rows]:
    """Return the items, and the numbers of those that are wanted in the order that is wanted.

    Where a number of them is compared with another run, the items have how much it changed.

    Raises:
        UsageError: If a condition or an order can't be read.
        RunDirectoryError: If the run that is compared with is none of the library.
    """
    found = snapshot.texts.find(wanted.query) if wanted.query.strip() else None
    shown, items = None, snapshot.items
    by, of = wanted.show.get("by", ""), wanted.show.get("of", "")
    match wanted.show.get("kind", ""):
        case "":
            pass
        case "lost":
            shown = snapshot.answers.lost(wanted.show)
        case "changed":
            than = wanted.show.get("than", "")
            other = library.run(than).snapshot()
            if of:
                now, before = (
                    one.items.column(of, partial(one.answers.column, by=by))
                    for one in (snapshot, other)
                )
                items = items.changed(than, of, now, other.items.keys, before)
                shown = (items.table[CHANGE] != 0).fill_null(value=False).to_numpy()
            else:
                shown = snapshot.answers.changed(other.answers)
        case "noted":
            notes = snapshot.notes()
            if tag := wanted.show.get("than", ""):
                notes = notes.filter(pl.col("tag") == tag)
            shown = snapshot.items.keys.is_in(notes["item"].to_list()).to_numpy()
        case other_kind:
            raise UsageError(
                f"items can be shown that lost, changed or have notes, not {other_kind!r:.80}"
            )
    if found is not None and shown is not None:
        # The search keeps what it found.
        found = found & shown
    column = partial(snapshot.answers.column, by=by)
    return items, items.select(wanted, shown if found is None else found, column)


Answer = Callable[[Request], object]

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STATIC: Final = "orchestrator.view.static"
_MOST: Final = 500
_MOST_BYTES: Final = 1000
# Of a note, with every character of four bytes
_MOST_NOTE_BYTES: Final = 20_000
T = TypeVar("T")
_JSON: Final = "application/json"
_encode = msgspec.json.Encoder(enc_hook=str).encode


def make_app(library: Library, desk: Sheet | None = None) -> Starlette:
    """The application, to be put behind a `Guard`; with a desk for labels where one is given."""
    api = Api(library, desk)
    routes = [
        ("/api/runs", api.runs),
        ("/api/compare", lambda asked: compared(library, asked.query_params)),
        ("/api/labels", lambda _: api.sheet.listing()),
        ("/api/labels/{code}", lambda asked: api.sheet.row(asked.path_params["code"])),
        ("/api/runs/{run}", api.overview),
        ("/api/runs/{run}/sections", lambda asked: api.snapshot(asked).sections),
        ("/api/runs/{run}/drawings", lambda asked: api.snapshot(asked).drawings),
        ("/api/runs/{run}/state", lambda asked: library.run(asked.path_params["run"]).state()),
        ("/api/runs/{run}/export", api.export),
        ("/api/runs/{run}/items", api.items),
        ("/api/runs/{run}/items/{index:int}", api.item),
        ("/api/runs/{run}/items/{index:int}/trace", api.trace),
    ]
    return Starlette(
        routes=[
            *(Route(path, _answer(answer)) for path, answer in routes),
            Route("/api/labels/{code}", api.label, methods=["POST"]),
            Route("/api/runs/{run}/items/{index:int}/notes", api.note, methods=["POST"]),
            Route("/static/{name}", _file),
            Route("/api/{rest:path}", _nothing),
            Route("/{rest:path}", _page),
        ]
    )


class Api:
    """The requests of the page; each is answered in a thread of its own."""

    def __init__(self, library: Library, desk: Sheet | None = None) -> None:
        self._library = library
        self._desk = desk

    def runs(self, request: Request) -> object:  # noqa: ARG002 (JSON; one protocol for all)
        """The list of runs."""
        return {
            "runs": self._library.listing(),
            "single": self._library.single,
            "labels": self._desk is not None,
        }

    async def label(self, request: Request) -> Response:
        """Save a label."""

        def write(said: dict[str, str]) -> object:
            if said.keys() != {"label"}:
                raise UsageError("expected a JSON object with a text 'label'")
            self.sheet.write(request.path_params["code"], said["label"])
            return said

        return await _post(request, dict[str, str], _MOST_BYTES, write)

    async def note(self, request: Request) -> Response:
        """Save a note on an item or an answer."""

        def write(said: dict[str, str | int]) -> object:
            snapshot, index = self._place(request)
            about = {
                "item": snapshot.items.keys[index],
                "model": named(str(said.get("model", "")), snapshot.answers.models),
                "at": datetime.now(UTC).isoformat(),
            }
            try:
                add_note(snapshot.result.path, msgspec.convert(said | about, Note))
            except msgspec.ValidationError as error:
                raise UsageError(f"this is no note: {error}") from error
            return {"notes": _notes(snapshot.notes(), [about["item"]])}

        return await _post(request, dict[str, str | int], _MOST_NOTE_BYTES, write)

    @property
    def sheet(self) -> Sheet:
        """The sheet that is labelled."""
        if self._desk is None:
            raise UsageError(
                "no sheet is open; start the viewer with: orchestrator view --labels FILE.csv"
            )
        return self._desk

    def overview(self, request: Request) -> object:
        """Return the first screen of the report."""
        snapshot = self.snapshot(request)
        return {"version": snapshot.version, **snapshot.overview}

    def items(self, request: Request) -> object:
        """A stretch of the items that are wanted."""
        snapshot = self.snapshot(request)
        items, rows = selected(self._library, snapshot, _asked(request))
        first, most = _number(request, "offset", 0), _number(request, "limit", 100)
        answers = snapshot.answers
        rows_shown = rows[first : first + min(most, _MOST)]
        listed, scale = items.page(rows_shown), []
        notes = snapshot.notes()
        shown = _notes(notes, items.keys[rows_shown].to_list())
        for row in listed:
            row["notes"] = [one for one in shown if one["item"] == row["name"]]
        if "answers" in request.query_params:
            by = named(request.query_params.get("by", ""), answers.by) or next(iter(answers.by), "")
            for row, cells in zip(listed, answers.page(rows_shown, by), strict=False):
                row["answers"] = cells
            scale = answers.scale(by)
        snapshot.prepare_search()
        return {
            "version": snapshot.version,
            "total": len(rows),
            "of": len(items.table),
            "rows": listed,
            "measures": items.measures,
            "counts": items.counts,
            "categories": items.categories,
            "models": [page_line(name) for name in answers.models],
            "by": [page_line(name) for name in answers.by],
            "scale": scale,
            "tags": sorted(set(notes["tag"].to_list()) - {""}),
        }

    def item(self, request: Request) -> object:
        """One item, with its neighbours in the order that is wanted."""
        snapshot, index = self._place(request)
        _, rows = selected(self._library, snapshot, _asked(request))
        between = request.query_params.getlist("between")
        shown = page(snapshot.result.frames, snapshot.items.keys[index], between)
        return {
            "version": snapshot.version,
            "index": index,
            "measures": snapshot.items.measures,
            "values": snapshot.items.page(np.array([index], dtype=np.int64))[0],
            "around": _around(rows, index),
            "notes": _notes(snapshot.notes(), [snapshot.items.keys[index]]),
            **shown,
            "matrices": snapshot.answers.between(index) if shown["is_many"] else [],
        }

    def trace(self, request: Request) -> object:
        """Return the requests made for an item, down to the tokens."""
        snapshot, index = self._place(request)
        return snapshot.trace(index)

    def export(self, request: Request) -> Response:
        """The items that are wanted, with their whole prompts, as a file.

        CSV is made safe for spreadsheets as `orchestrator export` does it; JSON is exact.
        """
        form = request.query_params.get("form", "csv")
        if form not in _EXPORTS:
            raise UsageError(f"items can be exported as csv or json, not as {form!r}")
        snapshot = self.snapshot(request)
        items, rows = selected(self._library, snapshot, _asked(request))
        table = items.table[rows].drop("preview")
        frames = snapshot.result.frames
        if ITEMS in frames:
            texts = frames.scan(ITEMS).select("item", "prompt", "reference")
            table = table.lazy().join(texts, on="item", how="left", maintain_order="left").collect()
        content = frame_text([table], "csv") if form == "csv" else table.write_json()
        name = re.sub(r"[^A-Za-z0-9._-]", "_", request.path_params["run"])[:80]
        disposition = {"Content-Disposition": f'attachment; filename="{name}-items.{form}"'}
        return Response(content, media_type=_EXPORTS[form], headers=disposition)

    def _place(self, request: Request) -> tuple[Snapshot, int]:
        snapshot = self.snapshot(request)
        index: int = request.path_params["index"]
        if index >= len(snapshot.items.keys):
            raise RunDirectoryError(f"this run has no item {index:,}")
        return snapshot, index

    def snapshot(self, request: Request) -> Snapshot:
        """The run that an address names, as it is now."""
        return self._library.run(request.path_params["run"]).snapshot()


def _around(rows: Rows, index: int) -> dict[str, int | None]:
    """Return the place of an item among the selected ones, and its neighbours."""
    places = (rows == index).nonzero()[0]
    if not places.size:
        return {"place": None, "total": len(rows), "before": None, "after": None}
    place = int(places[0])
    return {
        "place": place,
        "total": len(rows),
        "before": int(rows[place - 1]) if place else None,
        "after": int(rows[place + 1]) if place + 1 < len(rows) else None,
    }


def _asked(request: Request) -> Wanted:
    given = request.query_params
    return Wanted(
        query=given.get("q", ""),
        category=given.get("category", ""),
        where=tuple(given.getlist("where")),
        sort=given.get("sort", "index"),
        show={"kind": given.get("show", "")}
        | {name: given.get(name, "") for name in ("of", "to", "by", "than")},
    )


def _number(request: Request, name: str, usual: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else usual


def _answer(answer: Answer) -> Callable[[Request], Any]:
    """Answer in a thread: with a response as it is, with other values as JSON."""

    async def answered(request: Request) -> Response:
        try:
            found = await run_in_threadpool(answer, request)
        except OrchestratorError as error:
            status = 404 if isinstance(error, RunDirectoryError) else 500
            status = 400 if type(error) is UsageError else status
            said = _written({"error": page_line(str(error))})
            return Response(said, status, media_type="application/json")
        if isinstance(found, Response):
            return found
        return Response(_written(found), media_type="application/json")

    return answered


def _written(value: object) -> bytes:
    """JSON without anything that HTML would obey, should it ever stand in a page."""
    return _encode(value).replace(b"<", b"\\u003c")


async def _post(
    request: Request, kind: type[T], most: int, write: Callable[[T], object]
) -> Response:
    """The answer to a request whose body is JSON of a kind, and short."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            return Response(_written({"error": "too long"}), 413, media_type=_JSON)

    def written(_: Request) -> object:
        try:
            said = msgspec.json.decode(bytes(content), type=kind)
        except (msgspec.MsgspecError, ValueError) as error:
            raise UsageError("expected a JSON object of texts") from error
        return write(said)

    response: Response = await _answer(written)(request)
    return response


def _notes(notes: pl.DataFrame, items: Sequence[str]) -> list[dict[str, object]]:
    return [
        {
            "item": page_line(row["item"]),
            "model": page_line(row["model"]),
            "thumb": row["thumb"],
            "tag": page_line(row["tag"]),
            "text": safe_block(row["text"], MAX_TEXT),
            "at": page_line(row["at"]),
        }
        for row in notes.filter(pl.col("item").is_in(items)).iter_rows(named=True)
    ]


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    # The files of the page by name; the report's style is among them, so that both are alike
    own = {one.name: one for one in files(_STATIC).iterdir() if Path(one.name).suffix in _TYPES}
    report = files("orchestrator.report.html")
    shared = {"report.css": report / "style.css", "ways.js": report / "ways.js"}
    found = {**own, **shared}.get(name)
    if found is None:
        raise HTTPException(404)
    return Response(found.read_bytes(), media_type=_TYPES[Path(name).suffix])


async def _page(request: Request) -> Response:  # noqa: ARG001 (every address is the same page)
    content = (files(_STATIC) / "index.html").read_bytes()
    return Response(content, media_type=_TYPES[".html"])


async def _nothing(request: Request) -> Response:  # noqa: ARG001 (one protocol for all)
    return Response(_written({"error": "page not found"}), 404, media_type="application/json")
