"""The contract of a run directory: every file in it, harmed in every way, read by every reader.

A reader gives the results that the run has, or says in a line what is wrong and what to do. It
raises nothing else, waits for nothing and never ends with other numbers, also while it is written.
"""

import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import orchestrator
from orchestrator.cli import main
from orchestrator.errors import OrchestratorError
from orchestrator.frames import write_parquet
from orchestrator.report.progress import Progress
from orchestrator.runner.planning.revisions import REVISION, parse, revision_text
from orchestrator.runner.results import frames, readable
from orchestrator.store import RunDirectory, Store, values
from orchestrator.view.library import Library
from tests.cli.values import PARTS, results_of
from tests.launched import recipe_data

# A harmed file that hangs a reader must not hang the suite.
pytestmark = pytest.mark.timeout(600)

ADVICE = (
    "repair", "orchestrator run", "remove", "same command", "list runs with", "newer version",
    "no run",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that is complete, and was reported, with a log beside its store."""
    here = tmp_path_factory.mktemp("contract")
    (here / "made.yaml").write_text(json.dumps(recipe_data(n=4)), encoding="utf-8")
    before = Path.cwd()
    os.chdir(here)
    try:
        assert main(["run", "made.yaml", "--display", "none", "--format", "json"]) == 0
        assert main(["report", "made", "--format", "json"]) == 0
    finally:
        os.chdir(before)
    return here


def files_of(run: Path) -> list[str]:
    return sorted(str(file.relative_to(run)) for file in run.rglob("*") if file.is_file())


LONG = partial(pytest.param, marks=pytest.mark.long)
SLOWEST = (pytest.mark.slow, pytest.mark.long)
FILES = (
    "lock", "log.jsonl", "results/.exported", "results/.items", "results/.lock", "results/.notes",
    "results/.numbers", "results/.rankings", "results/answers.parquet", "results/items.parquet",
    "results/judgments.parquet", "revisions/1.yaml", "run.json", "servers/weak.log", "status.json",
    "store.sqlite", "store.sqlite-shm", "store.sqlite-wal",
)  # fmt: skip


def test_these_are_all_files_of_a_run(whole):
    found = files_of(whole / "runs" / "made")
    assert found == list(FILES), set(found) ^ set(FILES)


# -- harms -----------------------------------------------------------------------------------------


def flip(path: Path, seed: int = 0) -> None:
    content = bytearray(path.read_bytes() or b"x")
    at = random.Random(f"{path.name} {seed}").randrange(8 * len(content))
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    elsewhere = path.parents[2] / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").write_text("y")


def empty(path: Path) -> None:
    os.truncate(path, 0)


def huge(path: Path) -> None:
    """A terabyte, of which the disk holds nothing."""
    os.truncate(path, 1 << 40)


def other_type(path: Path) -> None:
    path.write_text("[1, 2, {}]\n", encoding="utf-8")


HARMS = (cut, fifo, link, dangling, folder, empty, huge, other_type)


# -- readers ---------------------------------------------------------------------------------------


def loaded(run: Path) -> object:
    """What Python reads, as the report has it."""
    result = orchestrator.load(run)
    for name in result.frames:
        assert result.frames[name].height == result.frames.scan(name).collect().height
    return results_of(result.to_json())


def viewed(run: Path, side: Path) -> object:
    library = Library([run.parent], side)
    library.listing()
    seen = library.run(run.name)
    seen.state()
    shown = seen.snapshot()
    assert shown.overview
    return results_of(shown.result.to_json())


def held_against(command, arguments, expected, what) -> None:
    code, out, err = command(*arguments)
    assert code in {0, 1, 2, 3, 4, 5}, (what, arguments, err)
    assert "Traceback" not in err, (what, err)
    if code in {1, 2}:
        assert any(word in err for word in ADVICE), (what, arguments, err)
    elif arguments[0] == "report" and out:
        assert results_of(out) == expected or "has no rows" in out, (what, arguments)


def in_python(call: Callable[[], object], expected: object, what: object) -> None:
    try:
        found = call()
    except OrchestratorError as error:
        said = str(error)
    else:
        assert found == expected, what
        return
    assert any(word in said for word in ADVICE), (what, said)


REPORT = ("report", "made", "--format", "json")
COMMANDS = (
    REPORT,
    ("report", "made", "--html", "r.html"),
    ("status", "made"),
    ("runs",),
    ("export", "made", "--to", "out"),
    ("compare", "made", "other", "--format", "json"),
    ("gate", "made", "--require", "strong > weak", "--format", "json"),
    ("plan", "made.yaml"),
)


@pytest.fixture
def run(here, whole):
    """A copy of the run, and one beside it to compare with."""
    shutil.copytree(whole, here, dirs_exist_ok=True)
    shutil.copytree(here / "runs" / "made", here / "runs" / "other")
    (here / "runs" / "other" / "run.json").write_text('{"name":"other","number":1,"format":1}')
    return here / "runs" / "made"


@pytest.fixture
def anew(here, whole, run) -> Callable[[], None]:
    def again() -> None:
        shutil.rmtree(run)
        shutil.copytree(whole / "runs" / "made", run)

    return again


@contextlib.contextmanager
def writing(run: Path, *, wanted: bool) -> Iterator[None]:
    """The run held by a process that writes its store, if that is wanted."""
    if not wanted:
        yield
        return
    with RunDirectory.lock(run) as directory, Store.open(directory.store_path) as store:
        store.set_meta("limits", "{}")
        store.flush()
        yield


@pytest.mark.parametrize("file", FILES)
def test_nothing_but_files_is_opened_and_no_bit_changes_a_number(command, run, whole, anew, file):
    expected = results_of(command(*REPORT)[1])
    for harm in (fifo, flip):
        anew()
        harm(run / file)
        what = f"{file} {harm.__name__}"
        held_against(command, REPORT, expected, what)
        held_against(command, ("status", "made"), expected, what)


@pytest.mark.slow
@pytest.mark.parametrize("one_in", [8, LONG(1)], ids=["some readers", "all readers"])
@pytest.mark.parametrize("is_written", [0, LONG(1)], ids=["alone", "written"])
@pytest.mark.parametrize("file", FILES)
def test_every_reader_of_every_harmed_file(command, run, anew, here, file, is_written, one_in):
    expected = results_of(command(*REPORT)[1])
    harms: list[Callable[..., object]] = [*HARMS, *(partial(flip, seed=n) for n in range(3))]
    for number, harm in enumerate(harms):
        anew()
        with writing(run, wanted=is_written and not file.startswith(("store.sqlite", "lock"))):
            harm(run / file)
            calls = (partial(loaded, run), partial(viewed, run, here / f"side-{number}"))
            readers = [partial(held_against, command, arguments) for arguments in COMMANDS]
            readers += [partial(in_python, call) for call in calls]
            for reader in readers[(number + FILES.index(file)) % one_in :: one_in]:
                reader(expected, (file, harm, number))
            with contextlib.suppress(OSError):
                shutil.rmtree(here / "out")


# -- values of a store -----------------------------------------------------------------------------


def stored(path: Path, statement: str) -> None:
    """Change a store that has no checksums of its values, as those of earlier versions."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("DELETE FROM meta WHERE key=?", (values.CHECKSUMS,))
        store.execute(statement)


# What tells a whole run from one that goes on is not known of a count.
AS_IF_LEFT = {"DELETE FROM place WHERE position=2"}


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=SLOWEST if "all" in part else ()) for part in PARTS],
)
def test_values_of_a_store_are_those_that_were_written(command, run, anew, part):
    expected = results_of(command(*REPORT)[1])
    for statement in PARTS[part]:
        anew()
        with contextlib.suppress(sqlite3.IntegrityError):
            stored(run / "store.sqlite", statement)
        # Frames that were exported are read although their rows can't be.
        (run / "results" / ".exported").unlink(missing_ok=True)
        code, out, err = command(*REPORT)
        assert code in {0, 1, 2}, (statement, err)
        if code:
            assert any(word in err for word in ADVICE), (statement, err)
        elif statement not in AS_IF_LEFT:
            assert results_of(out) == expected or "has no rows" in out, statement
            assert json.loads(out)["left"] in {0, None} or "has no rows" in out, statement


def test_a_value_that_is_not_as_it_was_written_is_named_and_repaired(command, run, anew):
    def asked(sql: str, given: tuple[str, ...] = ()) -> dict[str, str]:
        with contextlib.closing(sqlite3.connect(run / "store.sqlite")) as store, store:
            return dict(store.execute(sql, given))

    written = asked("SELECT key, value FROM meta")
    assert {"spent", "frames", "roles", values.CHECKSUMS} <= written.keys()
    for key, value in written.items():
        anew()
        other = re.sub(r"\d|\Z", lambda found: "7" if found[0] != "7" else "3", value, count=1)
        asked("UPDATE meta SET value=? WHERE key=?", (other, key))
        for arguments in (REPORT, ("run", "made.yaml", "--display", "none")):
            code, _, err = command(*arguments)
            assert (code, repr(key) in err, "runs repair " in err) == (1, True, True), err
        code, *said = command("runs", "repair", "made")
        assert (code, "count from 0" in "".join(said)) == (0, key == "spent")
        assert (f"left out: {key}" in "".join(said)) == (key != values.CHECKSUMS)
        # Roles are those of the columns of frames.
        assert written.keys() - asked("SELECT key, value FROM meta").keys() <= {key, "roles"}
        assert command("run", "made.yaml", "--display", "none")[0] == 0


# -- values of a recipe ----------------------------------------------------------------------------

RECIPE: tuple[tuple[str, str | None, Any], ...] = (
    ("statistics", "confidence_level", "x"),
    ("statistics", "confidence_level", [0.9]),
    ("statistics", "confidence_level", 7.0),
    ("statistics", "confidence_level", None),
    ("statistics", "n_resamples", 10**11),
    ("statistics", "n_resamples", "many"),
    ("statistics", "trust", 7),
    ("statistics", "of", {"x": 1}),
    ("seed", None, "x"),
    ("seed", None, -1),
    ("models", None, [1, 2]),
    ("methods", None, 7),
    ("methods", None, ["x"]),
    ("analyses", None, "x"),
    ("gates", None, {"x": 1}),
    ("statistics", None, []),
)


@pytest.mark.parametrize("is_stored", [False, True], ids=["file", "store"])
def test_values_of_a_recipe_are_held_to_what_a_recipe_may_say(command, run, anew, is_stored):
    """With the right checksum, in the file of a run whose store has none, or in both."""
    expected = results_of(command(*REPORT)[1])
    for section, key, value in RECIPE:
        anew()
        file = run / "revisions" / "1.yaml"
        record = parse(file.read_bytes())
        if key is None:
            record["recipe"][section] = value
        else:
            record["recipe"][section][key] = value
        text = revision_text(record)
        file.write_text(text, encoding="utf-8")
        with contextlib.closing(sqlite3.connect(run / "store.sqlite")) as store:
            if is_stored:
                values.put(store, {REVISION: text})
            else:
                store.execute("DELETE FROM meta WHERE key IN (?,?)", (REVISION, values.CHECKSUMS))
            store.commit()
        code, out, err = command(*REPORT)
        assert code == 1, (section, key, value, out)
        assert f"recipe.{section}" in err, err
        assert "repair" in err
        assert command("runs")[0] == 0
        assert command("status", "made")[0] == 0
    anew()
    (run / "revisions" / "1.yaml").unlink()
    assert results_of(command(*REPORT)[1]) == expected


def test_settings_of_another_version_are_read(command, run):
    file = run / "revisions" / "1.yaml"
    record = parse(file.read_bytes())
    record["recipe"]["statistics"]["of_another_version"] = 7
    record["recipe"]["unheard_of"] = {"x": 1}
    with contextlib.closing(sqlite3.connect(run / "store.sqlite")) as store:
        text = revision_text(record)
        values.put(store, {REVISION: text})
        store.commit()
    assert command(*REPORT)[0] == 0


# -- one moment ------------------------------------------------------------------------------------


@pytest.fixture
def going_on(here, run, monkeypatch):
    """A run that ends more units whenever a reader of it makes a frame, or gives it its name."""
    with (
        RunDirectory.lock(run) as directory,
        Store.open(directory.store_path) as store,
    ):
        plan = store.open_plan(b"n" * 16, 10_000)
        store.set_meta("units", "10000")
        store.flush()
        known = json.loads(store.meta.get("frames") or "")
        rows = {
            name: tuple(
                {"item": "i", "model": "weak", "method": name, "status": "ok"}.get(column)
                for column in columns
            )
            for name, columns in known.items()
        }
        n = 0

        def more(n_more: int = 7) -> None:
            nonlocal n
            for _ in range(n_more):
                for name, row in rows.items():
                    store.put_unit(n.to_bytes(16, "big"), plan, n, 0, name, [row])
                    n += 1
            store.set_meta("spent", json.dumps({"requests": n}))
            said = Progress(run_dir=str(run), units_total=10_000, units_stored=n)
            directory.write_status(msgspec.to_builtins(said), last_outcome=store.last_outcome)
            store.flush()

        write, give = write_parquet, readable._give

        def write_more(*arguments):
            more()
            yield from write(*arguments)
            more()

        def give_more(*arguments):
            more()
            give(*arguments)
            more()

        monkeypatch.setattr(frames, "write_parquet", write_more)
        monkeypatch.setattr(readable, "_give", give_more)
        more()
        yield more


def test_a_reader_of_a_run_that_goes_on_sees_one_moment(command, run, here, going_on):
    for _ in range(3):
        result = orchestrator.load(run)
        sizes = {name: result.frames[name].height for name in result.frames if name != "items"}
        assert len(set(sizes.values())) == 1, sizes
        assert sum(sizes.values()) == result.completeness.ended
        assert result.spent is not None
        assert result.spent.requests == result.completeness.ended
        for arguments in COMMANDS[:-1]:
            code, _, err = command(*arguments)
            # The rows are made up: their pairs compare nothing that a gate could name.
            assert code in ({2} if arguments[0] == "gate" else {0, 3}), (arguments, err)
            assert "damaged" not in err
        shown = Library([run.parent], here / "side").run("made").snapshot()
        assert shown.result.completeness.ended == sum(
            shown.result.frames[name].height for name in sizes
        )
        # Whatever came meanwhile, what a reader has stays as it was.
        assert {name: result.frames.scan(name).collect().height for name in sizes} == sizes
        going_on()


def test_frames_of_a_reader_stay_when_another_gives_newer_ones(command, run, going_on):
    first = orchestrator.load(run)
    n = first.frames.scan("judgments").collect().height
    going_on(50)
    newer = orchestrator.load(run)
    assert newer.frames["judgments"].height > n
    assert first.frames["judgments"].height == n


def test_readers_leave_nothing_behind(command, run, going_on):
    for _ in range(2):
        assert command(*REPORT)[0] == 0
    assert not [*(run / "results").glob(".orchestrator-lent-*")]
