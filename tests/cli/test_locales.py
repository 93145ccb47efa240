"""Names beyond ASCII in a locale that has no UTF-8: files, models, servers, options and streams."""

import json
import os
import subprocess
import sys

import pytest

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALES = [ASCII, ASCII | {"PYTHONIOENCODING": "ascii"}, ASCII | {"PYTHONIOENCODING": "latin-1"}]
RECIPE = {
    "name": "made",
    "models": {
        name: {"server": "fake", "weights": f"{name}:0.{n}"}
        for n, name in enumerate(("modèle", "模型", "jüdge"), 3)
    },
    "dataset": {"path": "données.jsonl"},
    "methods": [{"kind": "pairwise_ranking", "judges": ["jüdge"], "answer": {"max_tokens": 4}}],
    "statistics": {"n_resamples": 50},
}


def call(folder, locale, *arguments):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ["PYTHONPATH"], "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=folder, env=env | locale, capture_output=True, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "dössier"
    made.mkdir()
    (made / "rezépt.yaml").write_text(json.dumps(RECIPE, ensure_ascii=False), encoding="utf-8")
    lines = [json.dumps({"id": f"é{n}", "prompt": f"Wie heißt {n}?"}) for n in range(3)]
    (made / "données.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return made


@pytest.mark.parametrize("locale", LOCALES)
def test_every_command_takes_every_name(folder, locale):
    for arguments in (
        ("check", "rezépt.yaml"),
        ("run", "rezépt.yaml", "--run-dir", "läufe/été", "--html", "ré.html"),
        ("report", "läufe/été"),
        ("export", "läufe/été", "--to", "tablés", "--format", "csv"),
        ("labels", "läufe/été", "--to", "lébels.csv", "--n", "2"),
        ("plan", "rezépt.yaml", "--set", "models.模型.weights=ü"),
        ("runs", "list", "läufe"),
    ):
        done = call(folder, locale, *arguments)
        assert done.returncode == 0, done.stderr
        is_ascii = locale.get("PYTHONIOENCODING") != "latin-1"
        assert not is_ascii or done.stdout.isascii()
    for made in ("ré.html", "tablés", "lébels.csv"):
        assert (folder / made).exists()


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("words", [("check", "nö.yaml"), ("report", "nö"), ("list", "é"), ("--é",)])
def test_an_error_is_said_in_every_locale(folder, locale, words):
    done = call(folder, locale, *words)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"udc" not in done.stderr


def test_the_api_starts_servers_whatever_the_locale(tmp_path):
    dataset = {"kind": "demo", "n": 3}
    (tmp_path / "a.yaml").write_text(json.dumps(RECIPE | {"dataset": dataset}), encoding="utf-8")
    code = "import orchestrator; orchestrator.run('a.yaml', run_dir='run')"
    env = os.environ | ASCII
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
