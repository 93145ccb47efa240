"""All outputs about a run as facts: screen, tables, page, files, gates and comparison."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Final

from tests.oracles.verdicts import grids, reading
from tests.oracles.verdicts.facts import (
    Apart,
    Best,
    Counted,
    Even,
    Facts,
    Gated,
    Kind,
    Listed,
    Number,
    Ranks,
    Size,
)
from tests.oracles.verdicts.runs import command, told

# Of several scores, differences are decided together.
_SCORE: Final = ("--score", "prefer_a")
_ALONE: Final = "interval is for its model alone"
_CODES: Final = {"holds": 0, "fails": 4, "not known yet": 5}


def facts(
    run: Path, models: Sequence[str], n_prompts: int | None = None, *, page: bool = False
) -> Facts:
    """Return everything that the outputs about a run with one judge say of its ranking.

    Args:
        run: The run directory.
        models: Names.
        n_prompts: Distinct prompts of the run.
        page: Whether to read the HTML report too, which takes as long as all the rest.
    """
    printed = told("report", run, "--format", "json")
    document = json.loads(printed)
    found = Facts(tuple(models), n_prompts=n_prompts)
    found.add(of_json(document, found))
    texts = [told("report", run), told("report", run, "--full"), told("compare", run, *_SCORE)]
    for where, text in zip(("screen", "full", "compare"), texts, strict=True):
        found.add(reading.pages(grids.of_terminal(where, text), models, where))
    markdown = told("report", run, "--format", "markdown")
    found.add(reading.pages(grids.of_markdown("markdown", markdown), models, "markdown"))
    found.says_alone = all(_ALONE in text for text in (printed, *texts, markdown))
    told("export", run, "--format", "latex", "--to", run / "tex")
    for path in sorted((run / "tex").glob("*.tex")):
        where = f"latex {path.stem}"
        of_file = grids.of_latex(where, path.read_text(encoding="utf-8"))
        found.add(reading.pages(of_file, models, where))
    if page:
        found.add(of_page(run, models))
    found.add(of_gates(run, found))
    answers = [one["answer"] for one in document["brief"]["questions"]]
    found.unread = [answer for answer in answers if not _is_read(answer, models)]
    return found


def _is_read(answer: str, models: Sequence[str]) -> bool:
    """Return True if a sentence states something that is known, or nothing about models."""
    if answer.startswith(("No ranking", "No order", "Highest", "No winner: every model")):
        return True
    known = any(re.search(pattern, answer) for pattern, _ in reading._SENTENCES)
    return known or not any(model in answer for model in models)


def of_json(document: Mapping[str, Any], about: Facts) -> Iterator[object]:
    """Yield what the JSON report says of the only ranking; sets trust and completeness."""
    (ranking,) = document["rankings"]
    trusts = [one["verdict"] for one in ranking["trust"]]
    about.trust = next((one for one in trusts if one != "trusted"), "trusted")
    about.is_complete = ranking["n_judged"] == ranking["n_units"]
    yield Size("json", ranking["n_items_used"], ranking["n_clusters"])
    yield Listed("json ratings", frozenset(one["model"] for one in ranking["ratings"]))
    for one in ranking["ratings"]:
        yield from _rating("json ratings", one)
    for part in ranking["categories"]:
        where = f"json category {part['category']}"
        yield Listed(where, frozenset(one["model"] for one in part["ratings"]))
        for one in part["ratings"]:
            of = (one["model"], part["category"])
            yield Number(where, "category", of, one["rating"], one["low"], one["high"])
    for pair in ranking["pairs"]:
        names = (pair["better"], pair["worse"])
        yield (Apart if pair["resolvable"] else Even)("json pairs", *names)
        ends = (pair["difference"], pair["low"], pair["high"])
        yield Number("json pairs", "difference", names, *ends)
    n_apart = sum(pair["resolvable"] for pair in ranking["pairs"])
    yield Counted("json pairs", n_apart, len(ranking["pairs"]))
    yield from _wins(ranking["wins"])
    yield from of_questions(document, ranking)


def _rating(where: str, one: Mapping[str, Any]) -> Iterator[object]:
    low = float("-inf") if one["low_open"] else one["low"]
    high = float("inf") if one["high_open"] else one["high"]
    yield Number(where, "rating", (one["model"],), one["rating"], low, high)
    if one["rank_low"] is not None:
        yield Ranks(where, one["model"], one["rank_low"], one["rank_high"])


def _wins(wins: Mapping[str, Any]) -> Iterator[object]:
    models = wins["models"]
    for (i, first), (j, second) in permutations(enumerate(models), 2):
        cell = [wins[name][i][j] for name in ("preference", "low", "high")]
        yield Number("json wins", "win", (first, second), *cell)


def of_questions(document: Mapping[str, Any], ranking: Mapping[str, Any]) -> Iterator[object]:
    """Yield what the brief's question about the ranking says."""
    for question in document["brief"]["questions"]:
        if "Elo" not in question["measure"]:
            continue
        where = "json brief"
        models = [one["model"] for one in question["models"]]
        yield Listed(where, frozenset(models))
        yield Counted(where, question["n_apart"], question["n_pairs"])
        if question["state"] == "answered":
            yield Best(where, models[0])
        for one in question["models"]:
            yield Number(where, "rating", (one["model"],), one["value"], one["low"], one["high"])
        for name in ("answer", "apart", "basis"):
            yield from reading.stated(question[name], models, f"{where} {name}")


def of_page(run: Path, models: Sequence[str]) -> Iterator[object]:
    """Yield what the HTML report says; a chart of ratings has a mark a model.

    There is none where the judge cannot be trusted.
    """
    path = run / "page.html"
    told("report", run, "--html", path)
    text = path.read_text(encoding="utf-8")
    pages, _ = grids.of_html("page", text)
    yield from reading.pages(pages, models, "page")
    figure = re.search(r'<figure id="ratings-.*?</figure>', text, re.DOTALL)
    chart = r'<div class="scroll chart".*?<svg.*?</svg>'
    drawn = re.search(chart, figure[0], re.DOTALL) if figure else None
    if drawn:
        yield Listed("page chart", frozenset(one for one in models if one in drawn[0]))


def of_gates(run: Path, about: Facts) -> Iterator[object]:
    """Yield the verdicts of gates on pairs: one at a time, in both directions, and together."""
    models, pairs = about.models, list(permutations(about.models, 2))
    for better, worse in dict.fromkeys(pairs[:2] + pairs[-2:]):
        for question, text in _requirements(better, worse):
            yield from _gated(run, [(question, better, worse, text)], about)
    if len(models) > 2:
        yield from _gated(run, [("rating", a, b, f"{a} > {b}") for a, b in pairs if a < b], about)


def _requirements(better: str, worse: str) -> tuple[tuple[str, str], ...]:
    return (
        ("rating", f"{better} > {worse}"),
        ("win_rate", f"win_rate({better}, {worse}) > 0.5"),
    )


def _gated(run: Path, asked: Sequence[tuple[str, str, str, str]], about: Facts) -> Iterator[object]:
    options = [word for *_, text in asked for word in ("--require", text)]
    code, printed, _ = command("gate", run, *options)
    found = json.loads(told("gate", run, *options, "--format", "json"))
    assert code == found["exit_code"] == _CODES[found["verdict"]]
    for (question, better, worse, text), one in zip(asked, found["requirements"], strict=True):
        where = f"gate {text}" + (f" of {len(asked)}" if len(asked) > 1 else "")
        yield Gated(where, question, better, worse, one["verdict"], len(asked))
        shown = re.search(rf"^\W+({'|'.join(_CODES)}) +{re.escape(text)}$", printed, re.MULTILINE)
        yield Gated(where, question, better, worse, shown[1] if shown else "", len(asked))
        kind: Kind = "difference" if question == "rating" else "win"
        ends = (one["value"], one["low"], one["high"])
        yield Number(where, kind, (better, worse), *ends, judged=False)
        if about.is_complete and one["n"]:
            yield Size(where, one["n"], one["n_clusters"] or one["n"])
