"""The runs that can be looked at, and each as it was when it was last read.

A run is read into a `Snapshot`: frames, items, texts to search. It stays as it is while the run
goes on; the next one replaces it, not more often than it takes long to make.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any, Final
from xml.etree import ElementTree as ET

import polars as pl

from orchestrator import plugins
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import OrchestratorError, RunDirectoryError
from orchestrator.figures import free
from orchestrator.interface import api
from orchestrator.interface.differences import settings_table
from orchestrator.interface.exporting import material
from orchestrator.report.html import page, shell
from orchestrator.report.text import page_line
from orchestrator.runner.planning.revisions import last_revision
from orchestrator.runner.results import runs
from orchestrator.runner.results.frames import version
from orchestrator.runner.results.notes import read_notes
from orchestrator.runner.results.requests import Replay
from orchestrator.runner.results.stored import completeness
from orchestrator.store import RunDirectory, Store
from orchestrator.view.answers import Answers
from orchestrator.view.item import trace
from orchestrator.view.items import Items, Texts, build, write_texts

# What a browser takes to show the first items, and nothing should take from it.
_FIRST_SCREEN_S: Final = 0.5


class Snapshot:
    """One version of a run.

    Attributes:
        version: Of its rows.
        result: The run, its frames files that no longer change.
        folder: For what is made from it.
    """

    def __init__(self, version: str, result: api.Result, folder: Path) -> None:
        self.version = version
        self._replaying = threading.Lock()
        self._searched = False
        self.result = result
        self.folder = folder

    @cached_property
    def items(self) -> Items:
        """The items with what the methods say of each."""
        return build(self.result.frames, self.result.context.sources)

    @cached_property
    def answers(self) -> Answers:
        """The answers to each item, and their worth."""
        result = self.result
        names = [str(name) for name in result.settings.get("models") or ()]
        keys, sources = self.items.keys, result.context.sources
        return Answers(result.frames, keys, sources, names, self.folder)

    def notes(self) -> pl.DataFrame:
        """Return the notes as they are now."""
        return read_notes(self.result.path)

    @cached_property
    def texts(self) -> Texts:
        """The texts of each item, to be searched."""
        return write_texts(self.result.frames, self.items.keys, self.folder / "texts.arrow")

    def prepare_search(self) -> None:
        """Gather the texts before the first letter is typed, and after the first items are seen."""
        if not self._searched:
            self._searched = True
            later = threading.Timer(_FIRST_SCREEN_S, lambda: (self.answers.texts(), self.texts))
            later.daemon = True
            later.start()

    @cached_property
    def overview(self) -> dict[str, object]:
        """The run in brief as plain data, which waits for nothing that stands below it."""
        return {
            "description": page_line(str(self.result.settings.get("description") or "")),
            "content": tree_of(page.content(material(self.result))),
        }

    @cached_property
    def sections(self) -> dict[str, object]:
        """The sections of the report below its first screen, without drawings."""
        return {
            "sections": [[part.key, part.title] for part in self._parts],
            "content": tree_of(page.content(material(self.result), self._parts)),
        }

    @cached_property
    def drawings(self) -> dict[str, object]:
        """The charts by the key of their figure; none where they can't be drawn.

        They take longer than all that the report says.
        """
        figures = (figure for part in self._parts for figure in part.figures)
        # Shapes and text that we have just written
        return {key: _tree(ET.fromstring(svg)) for key, _, svg in shell.drawings(figures)}  # noqa: S314

    @cached_property
    def _parts(self) -> list[page.Section]:
        return page.shown_sections(material(self.result))

    def trace(self, index: int) -> dict[str, Any]:
        """Return the requests of an item, or the reason why they can't be shown.

        Raises:
            OrchestratorError: If the store can't be read.
        """
        try:
            replay = self._replay
        except OrchestratorError as error:
            return {"units": [], "asks": [], "why": page_line(str(error))}
        # A plan keeps the last items that it read, and is used by one thread at a time.
        with self._replaying:
            return trace(replay.units(index), replay.speller)

    @cached_property
    def _replay(self) -> Replay:
        result = self.result
        return Replay(result.path, result.frames, allow_code=result.allow_code)


_SVG: Final = "{http://www.w3.org/2000/svg}"

Tree = list[Any]
"""An element as [tag, attributes, children]; a child is text or a tree."""


def compared(library: "Library", given: Mapping[str, str]) -> dict[str, object]:
    """Two runs, by the names that `a` and `b` give, as `orchestrator compare` shows them.

    If they can't be compared, the reason, and the settings that differ.
    """
    a, b = (library.run(given.get(one, "")).snapshot().result for one in "ab")
    headline: Sequence[str]
    try:
        found = api.compare(a, b, allow_code=a.allow_code)
        headline, notes, tables = found.headline, found.notes, found.tables
    except OrchestratorError as error:
        differing = settings_table({one.path.name: one.settings for one in (a, b)})
        headline, notes = [str(error)], ()
        tables = () if differing is None else (differing,)
    draw = shell.template("grid.html.j2").module.folded  # type: ignore[attr-defined]  # a macro
    return {
        "headline": [page_line(line) for line in headline],
        "notes": [page_line(line) for line in notes],
        "tables": tree_of("".join(draw(shell.grid(one, one.key), True) for one in tables)),  # noqa: FBT003
    }


def tree_of(markup: str) -> Tree:
    """The elements of our own templates, in one that holds all: they are well-formed XML."""
    return _tree(ET.fromstring(f"<div>{markup}</div>"))  # noqa: S314 (we have just written it)


def _tree(element: ET.Element) -> Tree:
    children: list[Any] = [element.text] if element.text else []
    for child in element:
        children.append(_tree(child))
        # Lines between elements are layout, a space is a space.
        if child.tail and (child.tail.strip() or "\n" not in child.tail):
            children.append(child.tail)
    return [element.tag.removeprefix(_SVG), dict(element.attrib), children]


# A snapshot of a running run is kept at least so many times longer than it took to make.
_REST: Final = 10.0
_MOST_RUNS: Final = 4


class Run:
    """One run directory."""

    def __init__(self, path: Path, folder: Path, *, allow_code: bool) -> None:
        self.path = path
        self._folder = folder
        self._allow_code = allow_code
        self._lock = threading.Lock()
        self._snapshots: list[Snapshot] = []
        self._not_before = 0.0

    def state(self) -> dict[str, object]:
        """Return the progress of the run, and a mark that changes with its rows; cheap.

        Raises:
            OrchestratorError: If it can't be read.
        """
        said = RunDirectory.open(self.path).status()
        with Store.open(self.path / STORE_NAME, read_only=True) as store:
            mark, left = version(store), completeness(store).left
        values = {} if said is None else said.values
        return {
            "version": mark,
            "alive": said is not None and said.is_alive,
            "left": left,
            "total": values.get("units_total"),
            "failed": runs.failed_of(values),
        }

    def snapshot(self) -> Snapshot:
        """The run as it is now, or was a short while ago where it is running.

        Raises:
            OrchestratorError: If it can't be read.
        """
        with self._lock:
            newest = self._snapshots[-1] if self._snapshots else None
            if newest is not None and time.monotonic() < self._not_before:
                return newest
            with Store.open(self.path / STORE_NAME, read_only=True) as store:
                mark = version(store)
            if newest is not None and newest.version == mark:
                return newest
            began = time.monotonic()
            place = self._folder / mark.replace(":", "-")
            result = api.read(self.path, allow_code=self._allow_code, apart=place)
            made = Snapshot(mark, result, place)
            self._snapshots.append(made)
            # Whoever still reads the one before must find its files.
            for old in self._snapshots[:-2]:
                rmtree(old.folder, ignore_errors=True)
            del self._snapshots[:-2]
            ended = time.monotonic()
            self._not_before = ended + _REST * (ended - began)
            return made

    def forget(self) -> None:
        """Let go of what was read."""
        with self._lock:
            self._snapshots.clear()
            rmtree(self._folder, ignore_errors=True)


class Library:
    """Runs of folders, and single runs."""

    def __init__(self, paths: Sequence[Path], folder: Path, *, allow_code: bool = False) -> None:
        self._places = tuple(paths)
        self._folder = folder
        self._allow_code = allow_code
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._number = 0

    @property
    def single(self) -> str | None:
        """Name of the run where there is but one to look at."""
        is_single = len(self._places) == 1 and (self._places[0] / STORE_NAME).exists()
        return next(iter(self._named())) if is_single else None

    def listing(self) -> list[dict[str, Any]]:
        """The runs with their state, newest first; a run that can't be read says why."""
        found = []
        names = {path: name for name, path in self._named().items()}
        for parent in {path.parent for path in names}:
            for one in runs.list_runs(parent):
                path = Path(one["path"])
                if path in names:
                    found.append({**one, **_about(path), "name": names[path]})
        return sorted(found, key=lambda one: -one["at"])

    def run(self, name: str) -> Run:
        """A run by its name in the listing; nothing else on the disk can be named.

        Raises:
            RunDirectoryError: If there is none.
        """
        path = self._named().get(name)
        if path is None:
            raise RunDirectoryError(f"no run {name!r} found")
        with self._lock:
            run = self._runs.pop(name, None)
            if run is None:
                self._number += 1
                place = self._folder / str(self._number)
                run = Run(path, place, allow_code=self._allow_code)
            # The one looked at last stands last.
            self._runs[name] = run
            if len(self._runs) > _MOST_RUNS:
                self._runs.pop(next(iter(self._runs))).forget()
            return run

    def _named(self) -> dict[str, Path]:
        """Return the runs that there are now by name, with the folder where names are alike."""
        paths: dict[Path, None] = {}
        for place in self._places:
            if (place / STORE_NAME).exists():
                paths[place] = None
            else:
                paths.update(
                    dict.fromkeys(one.parent for one in sorted(place.glob("*/store.sqlite")))
                )
        resolved = {path.resolve(): path for path in paths}
        often = Counter(path.name for path in resolved)
        found: dict[str, Path] = {}
        for real, path in resolved.items():
            name = f"{real.name} ({real.parent.name})" if often[real.name] > 1 else real.name
            found[free(name, found, " ")] = path
        return found


def _about(path: Path) -> dict[str, Any]:
    try:
        settings = (last_revision(RunDirectory.open(path)) or {}).get("recipe", {})
    except (OrchestratorError, OSError, ValueError):
        settings = {}
    return {
        "recipe": page_line(str(settings.get("name", ""))),
        "description": page_line(str(settings.get("description") or "")),
        "models": [page_line(str(name)) for name in settings.get("models") or ()],
        "methods": [
            page_line(str(one.get("name") or plugins.label(str(one.get("kind")))))
            for one in settings.get("methods") or ()
        ],
        "at": (path / STORE_NAME).stat().st_mtime,
    }
