"""The whole life of a run among enemies: the server, the dataset, and runs of others beside it.

Every command is another user's (`nobody`), with 4 GiB of address space, in a folder with an odd
name, through links.
"""

import csv
import itertools
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import HTTPCookieProcessor, build_opener

import polars as pl
import pytest

from orchestrator.store import Store
from tests.cli.test_untrusted import BOMB, ENDLESS, TRIGGER
from tests.conftest import ROOT
from tests.e2e.test_paths import DECOYS, ODD, tree
from tests.fake.http import HttpRequest
from tests.fuzz.fuzzing import HOSTILE, SURROGATE
from tests.fuzz.mangled import mangled, mangling
from tests.fuzz.test_shown import FORMULAS, is_a_command
from tests.others import NOBODY, SOMEBODY, given_to, started
from tests.store.frames import compressed_blob, zeros
from tests.store.hostile import changed, hostile_run

pytestmark = [pytest.mark.slow, pytest.mark.others, pytest.mark.timeout(400)]

MODELS = {"a": "fake:0.3", "b": "fake:0.9", "judge": "fake:1.0"}
RECIPE, RUNS, DATA = "r[1] {x}.json", "runs [x]*", "d?"
# What JSON may hold; half of a surrogate pair is refused before.
TEXTS = [text for text in HOSTILE if SURROGATE not in text and "\udfff" not in text and text]
# Stands in every prompt, and in no question that a server is asked before.
ITEM = "Zanzibar"
LONGEST = 64 << 20
KEPT = f"{RUNS}/v[2]"


class User:
    """Runs commands as `nobody`, and looks at all that they say."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.here = home / "link [x]" / "é"

    def call(self, *arguments: object, code: int | set[int] = 0) -> str:
        process = started(self.here, self.home, *arguments)
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
        assert process.returncode in ({code} if isinstance(code, int) else code), (arguments, err)
        assert "Traceback" not in err, (arguments, err)
        for line in (out + err).splitlines():
            assert not [one for one in line if is_a_command(one)], (arguments, line)
        return out if process.returncode == 0 else err


@pytest.fixture
def user(tmp_path: Path) -> User:
    """A home in which the odd folder, its runs and its data are reached by links."""
    home = tmp_path / "home"
    for folder in ("disk/runs", "disk/data", f"far/{ODD}"):
        (home / folder).mkdir(parents=True)
    odd = home / "far" / ODD
    (home / "link [x]").mkdir()
    (home / "link [x]" / "é").symlink_to(odd)
    (odd / RUNS).symlink_to(home / "disk" / "runs")
    (odd / DATA).symlink_to("../../disk/data")
    for name in DECOYS:
        (home / "far" / name).mkdir()
    given_to(NOBODY, home)
    return User(home)


def write(user: User, path: str, content: bytes | str) -> None:
    file = user.here / path
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    given_to(NOBODY, file)


def material(user: User, url: str) -> None:
    rows = [
        {
            "key": f"k{n} {text}", "prompt": f"{ITEM} {text} {n}?", "reference": text or "yes",
            "category": text, "=1+1": text,
        }
        for n, text in enumerate(TEXTS)
    ]  # fmt: skip
    write(user, f"{DATA}/d[1].jsonl", "\n".join(map(json.dumps, rows)))
    limits = {"max_attempts": 1, "timeout_s": 20, "dead_after_s": 1, "max_in_flight": 4}
    recipe = {
        "name": "made",
        "models": {
            name: {
                "base_url": url, "backend": {"kind": "openai", "transport": "aiohttp"},
                "model": model, "limits": limits,
            }
            for name, model in MODELS.items()
        },
        "dataset": {"path": f"{DATA}/d[1].jsonl"},
        "methods": [{"kind": "pointwise", "judges": ["judge"], "answer": {"max_tokens": 8}}],
        "statistics": {"n_resamples": 100},
    }  # fmt: skip
    write(user, f"{DATA}/r.json", json.dumps(recipe))
    # Beside what it names, as the link stands there.
    (user.here / RECIPE).symlink_to(f"{DATA}/r.json")


def hostility() -> Callable[[HttpRequest, bytes], bytes]:
    """Of five replies one has odd numbers and one says hostile texts; one of all is too long."""
    rng, numbers, texts = random.Random(0), itertools.count(), itertools.cycle(HOSTILE)

    def change(request: HttpRequest, body: bytes) -> bytes:
        if ITEM.encode() not in request.body:
            return body
        number = next(numbers)
        if number == 5:
            return b" " * (LONGEST + 1)
        if number % 5 == 1:
            return mangled(body, rng)
        return said(body, next(texts)) if number % 5 == 2 else body

    return change


def said(body: bytes, text: str) -> bytes:
    """A reply in which the model says something else."""
    reply = json.loads(body)
    for choice in reply.get("choices", []):
        choice["message"] = {"role": "assistant", "content": f"{text} said"}
    return json.dumps(reply).encode()


def killed(user: User, done: Callable[[], bool], *arguments: str) -> None:
    process = started(user.here, user.home, *arguments)
    deadline = time.monotonic() + 60
    while process.poll() is None and not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    _, err = process.communicate()
    assert process.returncode == -9, err


def test_the_whole_life_of_a_run_among_enemies(user: User, tmp_path: Path) -> None:
    outside = {name: tree(user.home / "far" / name) for name in DECOYS}
    hostile, n_asked = hostility(), 0

    def change(request: HttpRequest, body: bytes) -> bytes:
        nonlocal n_asked
        n_asked += ITEM.encode() in request.body
        return hostile(request, body)

    with mangling("openai", list(MODELS.values())) as (url, server):
        material(user, url)
        user.call("check", RECIPE)
        assert json.loads(user.call("plan", RECIPE, "--json"))["n_items"] == len(TEXTS)
        server.change = change
        run = ("run", RECIPE, "--run-dir", KEPT, "--display", "plain")
        killed(user, lambda: n_asked > 20, *run)
        assert "units_total" in user.call("status", KEPT, "--json")
        user.call(*run, code={0, 3})
        server.change = None
        user.call(*run, code={0, 3})
    with Store.open(user.here / KEPT / "store.sqlite", read_only=True) as store:
        for failure in store.failures():
            assert failure.last_message.isprintable()
            assert "please report" not in failure.last_message
    read(user)
    read_by_another(user, tmp_path)
    assert {name: tree(user.home / "far" / name) for name in DECOYS} == outside


def read(user: User) -> None:
    """Every command that shows a run, or mends it."""
    for form in ("table", "json"):
        assert user.call("report", KEPT, "--format", form)
    user.call("report", KEPT, "--html", "o[1]*.html")
    assert "address space" in user.call("export", KEPT, "--figures", "c[1]?", code=2)
    page = (user.here / "o[1]*.html").read_text(encoding="utf-8")
    assert "Charts are not shown" in page
    is_harmless(page)
    user.call("export", KEPT, "--to", "e[1]", "--format", "csv")
    for file in (user.here / "e[1]").glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as opened:
            cells = [cell for row in csv.reader(opened) for cell in row]
        assert [cell for cell in cells if cell.lstrip().startswith(FORMULAS)] == []
    user.call("export", KEPT, "--to", "p[1]")
    rows = pl.read_parquet(user.here / "p[1]" / "scores.parquet", glob=False)
    assert rows.height == 2 * len(TEXTS)
    assert (rows["status"] == "ok").sum() > len(TEXTS) // 2
    assert "no damage found" in user.call("runs", "repair", KEPT)
    with viewed(user, RUNS) as get:
        (run,) = get("/api/runs")["runs"]
        place = f"/api/runs/{quote(run['name'])}/items"
        assert get(place)["total"] == len(TEXTS)
        for index in range(0, len(TEXTS), 4):
            assert ITEM in json.dumps(get(f"{place}/{index}"))


def is_harmless(page: str) -> None:
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def read_by_another(user: User, to: Path) -> None:
    """The report of the run with its charts, by this test's user, whose run it is not."""
    run = (user.here / KEPT).resolve()
    before = tree(run)
    for asked in (("report", "--html", "p.html"), ("export", "--figures", "charts")):
        command, option, name = asked
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", command, str(run), option, str(to / name)],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    page = (to / "p.html").read_text(encoding="utf-8")
    assert "Charts are not shown" not in page
    is_harmless(page)
    assert list((to / "charts").glob("*.svg"))
    assert tree(run) == before


@contextmanager
def viewed(user: User, *arguments: str) -> Iterator[Callable[[str], Any]]:
    """The viewer, by what it answers to the session that its link begins."""
    process = started(user.here, user.home, "view", *arguments, "--port", "0")
    browser = build_opener(HTTPCookieProcessor())
    try:
        assert process.stderr is not None
        link = next(line.split()[1] for line in process.stderr if line.startswith("open "))
        # It is said a moment before it listens.
        deadline = time.monotonic() + 60
        while True:
            try:
                browser.open(link, timeout=30).close()
                break
            except URLError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

        def get(path: str) -> Any:
            with browser.open(link.partition("/?")[0] + path, timeout=60) as reply:
                assert reply.headers["Content-Type"].startswith("application/json")
                assert reply.headers["X-Content-Type-Options"] == "nosniff"
                return json.load(reply)

        yield get
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    # 130 of the process that reads for it, where runs are others'.
    assert process.returncode in {0, 130}


DATASETS = {
    "twice.jsonl": b'{"prompt": "a", "prompt": "b"}\n',
    "long.jsonl": b'{"prompt": "' + b"x" * LONGEST + b'"}\n',
    "deep.jsonl": b'{"prompt": ' + b"[" * 1_000_000,
    "twice.json": b'[{"prompt": "a", "prompt": "b"}]',
    "names \x1b[2J.csv": b"prompt,prompt\na,b\n",
    "zip.parquet": b"PAR1" + bytes(1000) + b"PAR1",
}  # fmt: skip


def test_hostile_datasets_and_recipes_are_refused_in_a_line(user: User) -> None:
    recipe = {
        "models": {"a": {"base_url": "http://127.0.0.1:9", "backend": "openai"}},
        "dataset": {"path": ""},
        "methods": [{"kind": "answers"}],
    }
    for name, content in DATASETS.items():
        write(user, f"{DATA}/{name}", content)
        recipe["dataset"] = {"path": f"{DATA}/{name}"}
        write(user, "r.json", json.dumps(recipe))
        assert len(user.call("plan", "r.json", code=2)) < 2_000
    write(user, "bomb.yaml", BOMB)
    assert len(user.call("check", "bomb.yaml", code=2)) < 10_000


def endless_store(run: Path) -> None:
    changed(run, *ENDLESS)


def triggers(run: Path) -> None:
    changed(run, *TRIGGER)


def zstd_bomb(run: Path) -> None:
    bomb = compressed_blob(zeros(5 << 30, stated=None))
    with closing(sqlite3.connect(run / "store.sqlite")) as store, store:
        store.execute("UPDATE unit SET rows=?", (bomb,))


def yaml_bomb(run: Path) -> None:
    (run / "revisions" / "2.yaml").write_text(BOMB)


def links(run: Path) -> None:
    for name in ("answers.parquet", ".exported", "answers.part.parquet"):
        (run / "results" / name).symlink_to("../../../../victim/results/answers.parquet")


def no_harm(run: Path) -> None:
    (run / "status.json").write_text(json.dumps({"values": {"\x1b[2J": "\x1b]0;x\x07"}}))


ENEMIES = (endless_store, triggers, zstd_bomb, yaml_bomb, links, no_harm)


@pytest.mark.long
def test_runs_of_others_do_no_harm(user: User) -> None:
    runs = user.here / RUNS
    # Made by this test's user, then given away.
    os.chown(runs, 0, 0)
    for made in ENEMIES:
        made(hostile_run(runs / made.__name__))
    frame = hostile_run(runs / "frame", frame="../../victim/results/answers")
    given_to(SOMEBODY, runs.resolve(), 0o755)
    os.chown(runs, NOBODY, NOBODY)
    victim = runs / "victim"
    (victim / "results").mkdir(parents=True)
    (victim / "results" / "answers.parquet").write_text("precious")
    given_to(NOBODY, victim)
    before = tree(runs)

    for run in (*(runs / made.__name__ for made in ENEMIES), frame):
        code = 0 if run.name in {"links", "no_harm"} else 1
        user.call("report", f"{RUNS}/{run.name}", code=code)
        user.call("export", f"{RUNS}/{run.name}", "--to", f"{run.name}.out", code=code)
    assert "links" in user.call("runs", "list", RUNS)
    with viewed(user, RUNS) as get:
        assert len(get("/api/runs")["runs"]) >= 2
    material(user, "http://127.0.0.1:9")
    for command in (
        ("run", RECIPE, "--run-dir", f"{RUNS}/no_harm", "--display", "none"),
        ("runs", "repair", f"{RUNS}/zstd_bomb"),
        ("runs", "gc", f"{RUNS}/no_harm", "--drop"),
        ("pause", f"{RUNS}/no_harm"),
    ):
        assert re.search("belongs to|another user", user.call(*command, code=2))
    assert tree(runs) == before
