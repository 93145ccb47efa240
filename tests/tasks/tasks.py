"""The fifteen tasks: the pages that a user follows, and what is there when the task is done.

Pages quote the lines of output that they explain, and the reader requires them
(`tests/docs/reader.py`). A check here looks at the rest: files, numbers, and requests sent.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

import polars as pl

import orchestrator
from orchestrator import __version__
from orchestrator.store import Store
from tests.docs.reader import Reader, Step
from tests.tasks.viewer import Viewer

SENT: Final = re.compile(r"^([\d,]+) requests sent", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Task:
    """A task.

    Attributes:
        name: Short, for the command line of pytest.
        title: In the words of a user.
        pages: Of the documentation that are followed, in order.
        check: Asserts that the task is done.
    """

    name: str
    title: str
    pages: tuple[str, ...]
    check: Callable[[Reader], None]


def load(reader: Reader, name: str) -> orchestrator.Result:
    """A run that has to be complete, without a failure."""
    result = orchestrator.load(reader.folder / "runs" / name)
    assert result.ok, f"{name}: {result.n_left} units left, {result.failed} failed"
    return result


def ranked(result: orchestrator.Result) -> list[str]:
    return [rating.model for rating in result.rankings[0].ratings]


def steps(reader: Reader, beginning: str) -> list[Step]:
    """The steps whose commands begin so."""
    found = [step for step in reader.steps if step.command.startswith(beginning)]
    assert found, f"no command of the pages begins with {beginning!r}"
    return found


def sent(step: Step) -> int:
    """Requests that a call of `run` says it sent."""
    if step.output.startswith("complete: nothing to send"):
        return 0
    found = SENT.search(step.output)
    assert found, f"$ {step.command}\nsays no number of requests sent:\n{step.output}"
    return int(found[1].replace(",", ""))


def stored(reader: Reader, name: str) -> int:
    """Outcomes in the store of a run."""
    store = Store.open(reader.folder / "runs" / name / "store.sqlite", read_only=True)
    try:
        return sum(count.n for count in store.counts())
    finally:
        store.close()


def text(reader: Reader, name: str) -> str:
    return (reader.folder / name).read_text(encoding="utf-8")


# -- the tasks -------------------------------------------------------------------------------------


def first_run(reader: Reader) -> None:
    assert steps(reader, "orchestrator --version")[0].output.endswith(f" {__version__}\n")
    calls = steps(reader, "orchestrator run pairwise_ranking")
    assert sent(calls[0]) > 0
    assert sum(map(sent, calls)) == stored(reader, "pairwise_ranking")
    result = load(reader, "pairwise_ranking")
    assert ranked(result) == ["expert", "apprentice", "novice"]
    assert len(result.frames["judgments"]) == 90
    page = text(reader, "report.html")
    assert "<script src" not in page
    assert "expert" in page


def running_servers(reader: Reader) -> None:
    recipe = orchestrator.Recipe.from_yaml(reader.folder / "first.yaml")
    models = recipe.settings["models"]
    assert list(models) == ["judge", "novice", "expert"]
    assert recipe.settings["dataset"]["kind"] == "demo"
    assert {model["base_url"] for model in models.values()} == {f"http://127.0.0.1:{reader.port}"}
    result = load(reader, "first")
    assert result.settings["methods"][0]["prompt"] == "compact"
    assert ranked(result) == ["expert", "novice"]


def mend_a_recipe(reader: Reader) -> None:
    first, second, third = (step.output for step in steps(reader, "orchestrator check"))
    assert set(re.findall(r"^faulty\.yaml:(\d+): ", first, re.MULTILINE)) == {"4", "9", "11"}
    assert len(second.splitlines()) == 1
    assert third == "faulty.yaml: no faults\n"
    assert sorted(load(reader, "faulty").frames["items"]["item"]) == ["1", "2", "3"]


def own_dataset(reader: Reader) -> None:
    result = load(reader, "own")
    items = result.frames["items"]
    assert sorted(items["item"]) == list("123456")
    assert set(items["category"]) == {"order", "pick"}
    assert sum(map(sent, steps(reader, "orchestrator run own.yaml"))) == stored(reader, "own")


def add_a_model(reader: Reader) -> None:
    planned = steps(reader, "orchestrator plan ranking.yaml")[0].output
    assert "apprentice" in planned.partition("total")[0]
    first, second = map(sent, steps(reader, "orchestrator run ranking.yaml"))
    # Its answers, and judgments of two pairs in two orders.
    assert 0 < second <= 10 + 10 * 2 * 2
    assert first + second == stored(reader, "ranking")
    assert ranked(load(reader, "ranking"))[0] == "expert"


def interrupt(reader: Reader) -> None:
    first, second = steps(reader, "orchestrator run patient.yaml")
    assert sent(first) > 0
    assert sent(second) > 0
    assert sent(first) + sent(second) == stored(reader, "patient")
    assert len(load(reader, "patient").frames["judgments"]) == 40
    # The judge answers 30 requests a minute at first.
    (rate,) = re.findall(r"([\d.,]+) requests/s$", second.output, re.MULTILINE)
    assert float(rate.replace(",", "")) > 0.75
    said = text(reader, "ended.txt").splitlines()
    assert [line.partition(",")[0] for line in said] == [
        "patient: interrupted",
        "patient: complete",
    ]


def cap_spending(reader: Reader) -> None:
    first, second = map(sent, steps(reader, "orchestrator run capped.yaml"))
    assert first <= 30
    assert first + second == stored(reader, "capped")
    spent = load(reader, "capped").spent
    assert spent is not None
    assert spent.money


def judge_prompt(reader: Reader) -> None:
    assert load(reader, "mine").frames["judgments"]["p_ab"].list.len().to_list() == [5] * 4
    assert load(reader, "named").frames["judgments"]["p_ab"].list.len().to_list() == [3] * 4
    judgments, *_ = steps(reader, "orchestrator run named.yaml")
    assert sent(judgments) <= 4 * 2, "answers were requested again"


def read_a_result(reader: Reader) -> None:
    result = load(reader, "pairwise_ranking")
    answer = result.brief.questions[0].answer.text()
    for step in steps(reader, "orchestrator report pairwise_ranking")[:2]:
        assert step.output.startswith(answer)
    parts = json.loads(text(reader, "report.json"))["brief"]["questions"][0]["answer"]
    assert "expert" in json.dumps(parts)
    viewer = Viewer(reader.said_last())
    assert viewer.json("/api/runs")["runs"][0]["state"] == "complete"
    assert viewer.json("/api/runs/pairwise_ranking/items")["total"] == 20


def why_b(reader: Reader) -> None:
    load(reader, "why")
    viewer = Viewer(reader.said_last())
    item = viewer.json("/api/runs/why/items")["rows"][0]["index"]
    asks = viewer.json(f"/api/runs/why/items/{item}/trace")["asks"]
    answers = [ask for ask in asks if ask["kind"] == "generate"]
    assert len(answers) == 2
    for answer in answers:
        assert "".join(answer["tokens"]["pieces"]) == answer["text"]
        assert max(answer["tokens"]["logprobs"]) <= 0
    judgments = [ask for ask in asks if ask["kind"] == "choose"]
    for judgment in judgments:
        assert 0.9 < sum(label[1] for label in judgment["labels"]) <= 1.001


def compare_runs(reader: Reader) -> None:
    compared = orchestrator.compare(
        *(reader.folder / "runs" / name for name in ("short", "long"))
    ).to_frame()
    assert set(compared["n"]) == {60}
    resolved = compared.filter(pl.col("resolved") & (pl.col("model") == "expert"))
    assert len(resolved) == 1
    text_of = steps(reader, "orchestrator compare short long")[0].output
    assert "expert" in text_of.split("60 items in common")[0]


def gate_in_ci(reader: Reader) -> None:
    suite = ET.parse(reader.folder / "gate.xml").getroot()  # noqa: S314 (our own)
    cases = list(suite.iter("testcase"))
    assert len(cases) == 4
    assert all(case.find("failure") is None and case.find("error") is None for case in cases)
    assert "holds" in text(reader, "summary.md")


def paper_table(reader: Reader) -> None:
    tex = text(reader, "ratings.tex")
    assert tex.count(r"\begin{") == tex.count(r"\end{")
    for model in ("expert", "apprentice", "novice"):
        assert model in tex
    figures = list((reader.folder / "figures").glob("*.pdf"))
    assert figures
    assert all(figure.read_bytes().startswith(b"%PDF") for figure in figures)
    assert text(reader, "paper.bib").startswith("@")
    assert "expert" in text(reader, "paper.html")


def notebook(reader: Reader) -> None:
    assert len(load(reader, "first").frames["judgments"]) == 18


def own_method(reader: Reader) -> None:
    first, second, third = map(sent, steps(reader, "orchestrator run brevity.yaml"))
    assert (first, second, third) == (16, 0, 104)
    rows = load(reader, "brevity").frames["brevity"]
    assert len(rows) == 120
    by_model = rows.group_by("model").agg(pl.col("unused").mean())
    assert by_model["unused"].n_unique() == 2
    assert not rows.filter(pl.col("answer") != pl.col("answer").str.strip_chars()).height


TASKS: Final = (
    Task(
        "first_run", "Check the installation, and rank three models for the first time",
        ("tutorials/install", "tutorials/first_run"), first_run,
    ),
    Task(
        "running_servers", "Write a recipe for servers that are running, and run it",
        ("how_to/running_servers",), running_servers,
    ),
    Task(
        "mend_a_recipe", "Find the faults of a recipe from its error messages",
        ("how_to/mend_a_recipe",), mend_a_recipe,
    ),
    Task(
        "own_dataset", "Evaluate on questions of one's own, a part of them first",
        ("how_to/own_dataset",), own_dataset,
    ),
    Task(
        "add_a_model", "Add a model to a finished run, without asking the others again",
        ("how_to/add_a_model",), add_a_model,
    ),
    Task(
        "interrupt", "Watch a run, interrupt it, and go on", ("how_to/interrupt",), interrupt,
    ),
    Task(
        "cap_spending", "Estimate the cost of a run, and limit it",
        ("how_to/cap_spending",), cap_spending,
    ),
    Task(
        "judge_prompt", "Use a judge prompt and labels of one's own",
        ("how_to/judge_prompt",), judge_prompt,
    ),
    Task(
        "read_a_result", "Read a result: the first screen, the report, the viewer",
        ("how_to/read_a_result",), read_a_result,
    ),
    Task(
        "why_b", "Find why the judge preferred an answer, down to its tokens",
        ("how_to/why_b",), why_b,
    ),
    Task(
        "compare_runs", "Compare two runs, paired by item", ("how_to/compare_runs",), compare_runs,
    ),
    Task("gate_in_ci", "Guard a release with a gate", ("how_to/gate_in_ci",), gate_in_ci),
    Task(
        "paper_table", "Get a table, a figure and the citations into a paper",
        ("tutorials/paper_table",), paper_table,
    ),
    Task("notebook", "Run and read a recipe in a notebook", ("how_to/notebook",), notebook),
    Task(
        "own_method", "Write a method, test it, and run it",
        ("tutorials/own_method",), own_method,
    ),
)  # fmt: skip
