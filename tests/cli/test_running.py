"""Whole commands in this process, against fake servers that they launch."""

import json
import re

import polars as pl
import pytest

from orchestrator.errors import EXIT_PARTIAL, EXIT_USAGE

EVIL = (
    "\x1b[31mRED\x1b]0;title\x07 \u202eRTL | a\n# head <script>x</script> =cmd [l](http://x) \x9b5m"
)
OBEYED = set("\x1b\x07\u202e\x9b")


def run(command, path, *more):
    return command("run", path, "--display", "none", *more)


def test_a_run_is_complete_and_can_be_looked_at(command, recipe):
    path = recipe()
    code, out, _ = run(command, path)
    assert code == 0
    assert out.startswith("No winner: strong and weak cannot be told apart: +")
    assert "6 prompts, 6 judgments" in out
    assert "orchestrator report runs/made --full" in out
    for arguments in (
        ("status", "made"), ("status", "runs/made", "--json"), ("runs",), ("report", "made"),
    ):  # fmt: skip
        assert command(*arguments)[0] == 0
    assert command("report", "made")[1] == out
    assert "not finished" not in command("report", "made")[2]
    assert run(command, path)[:2] == (0, out)


def test_formats_of_a_run(command, recipe):
    path = recipe()
    assert run(command, path, "--format", "json")[0] == 0
    said = json.loads(command("report", "made", "--format", "json")[1])
    (document,) = said["rankings"]
    assert document["judge"] == "judge"
    assert said["brief"]["questions"][0]["judge"] == "judge"
    markdown = command("report", "made", "--format", "markdown")[1]
    assert markdown.startswith("# No winner: strong and weak cannot be told apart: ")
    assert "## Ranking of 2 models" in markdown


def test_the_whole_is_printed_where_it_is_asked_for(command, recipe):
    path = recipe()
    assert "Win rates" not in run(command, path)[1]
    assert "Win rates" in run(command, path, "--full")[1]
    assert "Win rates" in command("report", "made", "--full")[1]


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_exports(command, recipe, here, form):
    run(command, recipe())
    code, out, _ = command("export", "made", "--to", "out/deep", "--format", form)
    assert code == 0
    sizes = {"answers": 12, "items": 6, "judgments": 6}
    assert out == "".join(f"out/deep/{name}.{form}: {n} rows\n" for name, n in sizes.items())
    path = here / "out" / "deep" / f"judgments.{form}"
    assert {
        "parquet": lambda: pl.read_parquet(path),
        "csv": lambda: pl.read_csv(path),
        "jsonl": lambda: pl.read_ndjson(path),
    }[form]().height == 6


def test_an_export_over_a_file_is_a_wrong_command(command, recipe, here):
    run(command, recipe())
    (here / "taken").touch()
    code, _, err = command("export", "made", "--to", "taken")
    assert code == 2
    assert "taken/answers.parquet cannot be written: taken is a file, and a folder is needed" in err


def test_units_that_fail_are_exit_code_3_and_told(command, recipe):
    broken = {
        "kind": "scripted",
        "rules": [{"fault": "status", "status": 400, "message": "bad luck"}],
    }
    models = {
        "weak": {"server": "scripted", "weights": "a:0.2"},
        "strong": {"server": broken, "weights": "b:0.9"},
        "judge": {"server": "scripted", "weights": "j:1.0"},
    }
    code, out, err = run(command, recipe(models=models))
    assert code == 3
    assert out.startswith("No ranking: all 6 judgments failed.")
    assert "HTTP 400: bad luck" in " ".join(out.split())
    assert "6 judgments missing, not filled in  of 6" in command("report", "made", "--full")[1]
    assert "12 units failed: See why 12 units failed: `orchestrator view" in err


def test_a_server_that_does_not_start_is_exit_code_1(command, recipe):
    models = {
        name: {
            "server": {"kind": "scripted", "rules": [{"fault": "no such fault"}]},
            "weights": "x",
        }
        for name in ("a", "b")
    }
    code, _, err = run(command, recipe(models=models, methods=[{"kind": "answers"}]))
    assert code == 1
    assert "no such fault" in err


def priced(recipe, money):
    models = {
        name: {"server": "scripted", "weights": weights, "price": {"input": 10.0, "output": 100.0}}
        for name, weights in (("weak", "a:0.2"), ("strong", "b:0.9"), ("judge", "j:1.0"))
    }
    return recipe(models=models, dataset={"kind": "demo", "n": 40}, budget={"money": money})


def test_what_was_spent_is_said_alike_everywhere_and_within_the_bound(command, recipe):
    for bound in (0.2, 0.3):
        code, _, err = run(command, priced(recipe, bound))
        assert code == EXIT_PARTIAL
        spent = json.loads(command("status", "made", "--json")[1])["money"]
        assert bound - 0.05 < spent <= bound
        assert f"stopped: budget.money: {spent:.2f} of {bound:.2f} spent" in " ".join(err.split())
        assert f"{spent:.2f} spent in all calls" in command("status", "made")[1]


def test_a_budget_is_exit_code_3_and_the_next_call_goes_on(command, recipe):
    path = recipe()
    code, _, err = run(command, path, "--set", "budget.requests=5")
    assert code == 3
    assert "run the same command again" in err
    assert command("report", "made")[1].startswith("Incomplete: 13 of 18 units remain")
    assert run(command, path)[0] == 0


def test_an_unset_key_is_exit_code_2_and_named(command, recipe, monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    url = {"base_url": "http://127.0.0.1:9", "api_key_env": "SOME_KEY"}
    path = recipe(models={"a": url, "b": url}, methods=[{"kind": "answers"}])
    code, _, err = run(command, path)
    assert code == 2
    assert "SOME_KEY is not set" in err


def test_nothing_that_a_terminal_obeys_comes_through(command, recipe, lines, here):
    rows = [
        {"id": f"{n}\x1b[2J", "prompt": EVIL, "reference": EVIL, "category": f"{EVIL}{n % 2}"}
        for n in range(4)
    ]
    evil = {"kind": "scripted", "rules": [{"text": EVIL}]}
    broken = {"kind": "scripted", "rules": [{"fault": "status", "status": 400, "message": EVIL}]}
    models = {
        "[red]w|`b`<b>\u0639\u0631\u0628": {"server": evil, "weights": "a:0.2"},
        "\u6a21\u578b": {"server": "scripted", "weights": "b:0.9"},
        "broken": {"server": broken, "weights": "c:0.9"},
        "judge": {"server": "scripted", "weights": "j:1.0"},
    }
    methods = [{"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"}]
    path = recipe(models=models, dataset=lines("evil.jsonl", *rows), methods=methods)
    code, out, err = command("run", path, "--display", "plain")
    assert code == 3
    forms = ("table", "markdown", "json")
    shown = [out, err, *(command("report", "made", "--format", form)[1] for form in forms)]
    shown.append(command("report", "made", "--full")[1])
    shown += [command("status", "made")[1], command("runs")[1]]
    for form in ("csv", "jsonl"):
        command("export", "made", "--to", ".", "--format", form)
        shown += [
            (here / f"{name}.{form}").read_text(encoding="utf-8")
            for name in ("answers", "judgments")
        ]
    assert not OBEYED & set("".join(shown))
    markdown = shown[3]
    assert not re.search(r"<script>|(?<!\\)\[red\]|^# head", markdown, re.MULTILINE)
    frame = pl.read_ndjson(here / "answers.jsonl")
    assert EVIL in frame["prompt"].to_list()


def test_items_that_ask_the_same_are_one_prompt(command, recipe, lines):
    path = recipe(dataset=lines("same.jsonl", *({"prompt": "same"} for _ in range(3))))
    code, out, _ = run(command, path)
    assert code == 0
    assert "1 prompt, 3 judgments" in out


def test_one_item_gives_no_interval(command, recipe, lines):
    code, out, _ = run(command, recipe(dataset=lines("one.jsonl", {"prompt": "x"})))
    assert code == 0
    assert "1 prompt, 1 judgment;" in out
    assert "one item: no interval can be given" in command("report", "made", "--full")[1]


def test_answers_alone_are_reported(command, recipe):
    code, out, _ = run(command, recipe(methods=[{"kind": "answers"}]))
    assert code == 0
    assert "exact match" in out.splitlines()[0]
    assert "Answers  " in command("report", "made", "--full")[1]


def test_a_plan_sends_nothing_and_writes_nothing(command, recipe, here):
    code, out, _ = command("plan", recipe())
    assert code == 0
    assert out.startswith("Plan\n6 items · 18 units\n")
    assert not (here / "runs").exists()
    json.loads(command("plan", "made.yaml", "--json")[1])


def test_results_that_can_not_be_written_are_said_in_words(command, recipe, here):
    path = recipe()
    run(command, path, "--limit", "2")
    results = here / "runs" / "made" / "results"
    for file in results.iterdir():
        file.unlink()
    results.rmdir()
    results.touch()
    # `run` says so before it sends anything.
    for expected, arguments in (2, ("run", path, "--display", "none")), (1, ("report", "made")):
        code, out, err = command(*arguments)
        assert (code, out) == (expected, "")
        assert "results" in err
        assert "Traceback" not in err


def test_a_directory_that_holds_the_run_of_another_recipe_is_refused(command, recipe):
    run(command, recipe("first"), "--run-dir", "d")
    for name in ("run", "plan"):
        code, _, err = command(name, recipe("second"), "--run-dir", "d")
        assert code == EXIT_USAGE
        assert "holds a run of the recipe 'first'" in " ".join(err.split())
        assert "write 'name: first' into the recipe" in " ".join(err.split())


def test_a_changed_recipe_says_what_changed(command, recipe):
    run(command, recipe("first"), "--run-dir", "d")
    code, _, err = command(
        "run", recipe("first", methods=[{"kind": "answers", "answer": {"max_tokens": 4}}]),
        "--run-dir", "d", "--display", "plain",
    )  # fmt: skip
    assert code == 0
    assert "changed" in err
