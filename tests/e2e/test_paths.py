"""The whole life of a run in folders whose names are patterns, markup and templates elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import time

import polars as pl
import pytest

from tests.conftest import BUNDLED
from tests.e2e.runs import CANDIDATES, MODELS, fake_server, stats

ODD = "a[1]*? {x} é"
# What a pattern, a shell or a template would make of that name.
DECOYS = ("a1", "a1-- {x} é", "a[1]*?  é")
N = 24


def call(here, *arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=here, capture_output=True, text=True, check=False, timeout=100,
        env={**_environment(), "PYTHONPATH": os.environ["PYTHONPATH"]},
    )  # fmt: skip
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout


def _environment():
    return {name: value for name, value in os.environ.items() if name != "COLUMNS"}


def material(folder, url, n):
    """A recipe with all the files that it may name, all with odd names."""
    folder.mkdir()
    keys = [f"k{k}" for k in range(n)]
    items = pl.DataFrame({"key": keys, "prompt": [f"What is {k}?" for k in keys]})
    items.write_parquet(folder / "d[1].parquet")
    pl.DataFrame(
        {"item": keys * 3, "model": [m for m in CANDIDATES for _ in keys], "label": ["3"] * 3 * n}
    ).write_parquet(folder / "l[1]*.parquet")
    pl.DataFrame({"key": keys, "answer": [f"given {k}" for k in keys]}).write_parquet(
        folder / "given?.parquet"
    )
    shown = "{{ prompt }} {{ answer }} Rate it from {{ low }} to {{ high }}."
    (folder / "p[1]{}.j2").write_text(shown, encoding="utf-8")
    models = {
        name: {"base_url": url, "backend": "fake", "model": model}
        for name, model in zip((*CANDIDATES, "judge"), MODELS, strict=True)
    }
    models["given"] = {"answers": "given?.parquet"}
    recipe = {
        "name": "made",
        "models": models,
        "dataset": {"path": "d[1].parquet"},
        "methods": [
            {
                "kind": "pairwise_ranking", "judges": ["judge"],
                "candidates": [*CANDIDATES, "given"], "answer": {"max_tokens": 8},
            },
            {"kind": "pointwise", "judges": ["judge"], "candidates": [*CANDIDATES],
             "prompt": "p[1]{}.j2"},
        ],
        "analyses": [
            {"kind": "meta_evaluation", "gold": {"labels": "l[1]*.parquet"}},
        ],
        "statistics": {"n_resamples": 100},
    }  # fmt: skip
    (folder / "r[1] {x}.json").write_text(json.dumps(recipe), encoding="utf-8")
    return recipe


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _killed(here, url, *arguments):
    before = stats(url)["total"]
    process = subprocess.Popen(
        # Slower than by default, so that it does not end before it is killed.
        [sys.executable, "-m", "orchestrator", *arguments, "--set", "limits.max_in_flight=2"],
        cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**_environment(), "PYTHONPATH": os.environ["PYTHONPATH"]},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while process.poll() is None and stats(url)["total"] < before + 60:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    assert process.wait() != 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_whole_life_of_a_run_in_an_oddly_named_folder(tmp_path):
    rules = {"rules": [{"latency_s": [0.01, 0.03]}]}
    with fake_server(rules) as url:
        recipe = material(tmp_path / ODD, url, N)
        for name in DECOYS:
            material(tmp_path / name, url, 3)
        here = tmp_path / ODD
        named, kept = "r[1] {x}.json", "runs [x]*/v[2]"
        # Runs where a pattern would find them, which say something else.
        other = tmp_path / DECOYS[0]
        call(other, "run", named, "--run-dir", kept, "--display", "none")
        for place in (other / "runs x1" / "v2", here / "runs x1" / "v2", here / "runs x1" / "v[2]"):
            shutil.copytree(other / kept, place)
        for name in DECOYS[1:]:
            shutil.copytree(other / "runs [x]*", tmp_path / name / "runs [x]*")
        before = {name: tree(tmp_path / name) for name in (*DECOYS, f"{ODD}/runs x1")}

        call(here, "check", named)
        planned = json.loads(call(here, "plan", named, "--run-dir", kept, "--json"))
        assert planned["n_items"] == N
        run = ("run", named, "--run-dir", kept, "--display", "none")
        _killed(here, url, *run)
        call(here, "status", kept, "--json")
        ran = call(here, *run, "--format", "json", "--html")
        assert (here / kept / "report.html").read_text(encoding="utf-8").count("v[2]")

        _read(here, kept, ran)
        n_sent = stats(url)["total"]
        recipe["reuse"] = [kept]
        (here / "again*.json").write_text(json.dumps(recipe), encoding="utf-8")
        call(here, "run", "again*.json", "--run-dir", "re[u]se", "--display", "none")
        assert stats(url)["total"] == n_sent
        call(here, "run", named, "--run-dir", kept, "--fresh", "--limit", "2", "--display", "none")
        assert (here / f"{kept}.2" / "store.sqlite").exists()
        assert {name: tree(tmp_path / name) for name in before} == before


def _read(here, kept, ran):
    """Every command that reads a run, or mends it."""
    said = json.loads(call(here, "report", kept, "--format", "json"))
    assert said == json.loads(ran)
    assert str(N) in json.dumps(said)
    call(here, "report", kept, "--html", "o[1]*.html")
    call(here, "export", kept, "--figures", "c[1]?")
    assert (here / "o[1]*.html").exists()
    assert list((here / "c[1]?").glob("*.svg"))
    for form in ("parquet", "csv", "jsonl"):
        call(here, "export", kept, "--to", f"e[1]{form}", "--format", form)
        assert (here / f"e[1]{form}" / f"items.{form}").exists()
    assert "v[2]" in call(here, "runs", "runs [x]*")
    assert json.loads(call(here, "status", kept, "--json"))["units_total"]
    assert "no damage found" in call(here, "runs", "repair", kept)
    call(here, "runs", "gc", kept)
    call(here, "runs", "gc", kept, "--drop")
    _damage(here / kept / "store.sqlite")
    assert "lost" in call(here, "runs", "repair", kept)
    call(here, "run", "r[1] {x}.json", "--run-dir", kept, "--display", "none")
    assert "left by repair" in call(here, "runs", "gc", kept)


def _damage(store):
    content = bytearray(store.read_bytes())
    middle = len(content) // 2 // 8192 * 8192
    content[middle : middle + 8192] = bytes(8192)
    store.write_bytes(content)


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(300)
@pytest.mark.long
def test_weights_in_an_oddly_named_folder_are_served(tmp_path):
    for name in (ODD, *DECOYS):
        shutil.copytree(BUNDLED / ("judge" if name == ODD else "novice"), tmp_path / name / "w[1]")
    recipe = {
        "name": "weights",
        "models": {"one": {"server": "embedded", "weights": f"{ODD}/w[1]"}},
        "dataset": {"kind": "demo", "n": 2},
        "methods": [{"kind": "glass_box", "answer": {"max_tokens": 8}}],
    }
    (tmp_path / "r.json").write_text(json.dumps(recipe), encoding="utf-8")
    call(tmp_path, "run", "r.json", "--run-dir", f"{ODD}/run", "--display", "none")
    recipe["models"] = {"one": {"server": "embedded", "weights": "bundled:judge"}}
    (tmp_path / "r.json").write_text(json.dumps(recipe), encoding="utf-8")
    call(tmp_path, "run", "r.json", "--run-dir", f"{ODD}/bundled", "--display", "none")
    odd, bundled = (
        pl.read_parquet(tmp_path / ODD / name / "results" / "answers.parquet", glob=False)
        for name in ("run", "bundled")
    )
    assert odd["text"].to_list() == bundled["text"].to_list()
