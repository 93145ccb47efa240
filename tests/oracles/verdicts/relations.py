"""What a run concludes, and changes of a study that must not change it."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from tests.oracles.verdicts.runs import told
from tests.oracles.verdicts.studies import Prompt, Study, Verdict

Value = tuple[float | str | bool | None, ...]
Numbers = tuple[float | None, ...]
Conclusions = dict[str, Value]
Names = Mapping[str, str]

# Cells in words that ties leave open, beside those that name what a row is about.
_SAID: Final = frozenset({"order of the models", "rank", "group"})
_CLOSE: Final = {"rel_tol": 1e-6, "abs_tol": 1e-7}


def conclusions(run: Path, names: Names | None = None) -> Conclusions:
    """Return everything that a run concludes: numbers, intervals and verdicts by where they stand.

    Args:
        run: The run directory.
        names: Other names of its models, under which its conclusions are returned.
    """
    document = json.loads(told("report", run, "--format", "json"))
    called = dict(names or {})
    found: Conclusions = {}
    for question in document["brief"]["questions"]:
        found |= _of_question(question, called)
    for ranking in document["rankings"]:
        found |= dict(_of_ranking(ranking, called))
    for table in document["tables"]:
        found |= dict(_of_table(table, called))
    return found


def _of_question(question: Mapping[str, Any], called: Names) -> Conclusions:
    where = f"brief {question['source']}"
    found: Conclusions = {
        f"{where}: verdict": (question["state"], question["n_apart"], question["n_pairs"])
    }
    for one in question["models"]:
        model = called.get(one["model"], one["model"])
        found[f"{where}: {model}"] = (one["value"], one["low"], one["high"], one["rank"])
    return found


def _of_ranking(ranking: Mapping[str, Any], called: Names) -> Iterator[tuple[str, Value]]:
    where = f"ranking {ranking['source']}"
    yield f"{where}: n", (ranking["n_items_used"], ranking["n_clusters"])
    yield f"{where}: trust", tuple(one["verdict"] for one in ranking["trust"])
    parts = [("", ranking["ratings"])]
    parts += [(part["category"], part["ratings"]) for part in ranking["categories"]]
    for category, ratings in parts:
        for one in ratings:
            model = called.get(one["model"], one["model"])
            ranks = (one["rank_low"], one["rank_high"])
            yield f"{where} {category}: {model}", (one["rating"], one["low"], one["high"], *ranks)
    for pair in ranking["pairs"]:
        a, b = (called.get(pair[side], pair[side]) for side in ("better", "worse"))
        value: Numbers = (pair["difference"], pair["low"], pair["high"])
        if a > b:
            a, b, value = b, a, _turned(value)
        yield f"{where}: {a} over {b}", (*value, pair["resolvable"], pair["adjusted_p"])
    models = [called.get(name, name) for name in ranking["wins"]["models"]]
    for (i, a), (j, b) in combinations(enumerate(models), 2):
        at = (i, j) if a < b else (j, i)
        cell = tuple(ranking["wins"][name][at[0]][at[1]] for name in ("preference", "low", "high"))
        yield f"{where}: {min(a, b)} against {max(a, b)}", cell


def _turned(value: Numbers) -> Numbers:
    middle, low, high = (None if one is None else -one for one in value)
    return middle, high, low


def _of_table(table: Mapping[str, Any], called: Names) -> Iterator[tuple[str, Value]]:
    for row in table["rows"]:
        label = " ".join(
            called.get(cell, cell)
            for name, cell in row.items()
            if isinstance(cell, str) and name not in _SAID
        )
        for name, cell in row.items():
            place = f"table {table['source']} {table['table']} | {label} | {name}"
            if isinstance(cell, dict):
                yield place, (cell["value"], cell["low"], cell["high"])
    for comparison in table["comparisons"]:
        for pair in comparison["pairs"]:
            a, b = (called.get(pair[side], pair[side]) for side in ("higher", "lower"))
            cell = pair["difference"]
            value: Numbers = (cell["value"], cell["low"], cell["high"])
            if a > b:
                a, b, value = b, a, _turned(value)
            place = f"comparison {table['source']} {comparison['judge']}: {a} over {b}"
            yield place, (*value, pair["resolvable"])


def differing(one: Conclusions, two: Conclusions) -> list[str]:
    """Return the places at which two runs conclude different things."""
    return [
        f"{place}: {one.get(place)} and {two.get(place)}"
        for place in {**one, **two}
        if not _same(one.get(place), two.get(place))
    ]


def _same(one: Value | None, two: Value | None) -> bool:
    if one is None or two is None or len(one) != len(two):
        return False
    return all(map(_close, one, two))


def _close(one: object, two: object) -> bool:
    if isinstance(one, float) and isinstance(two, float | int):
        return one == two or math.isclose(one, two, **_CLOSE)
    return one == two


def resolved(found: Conclusions) -> set[tuple[str, bool]]:
    """Return the pairs that are told apart, and whether the first of each is the better one."""
    return {
        (place, isinstance(value[0], float) and value[0] > 0.0)
        for place, value in found.items()
        if " over " in place and value[3] is True
    }


Change = Callable[[Study], Study]


def copied(study: Study) -> Study:
    """Return the study with three exact copies of each prompt."""
    prompts = [replace(one, key=f"{one.key}-{n}") for n in range(3) for one in study.prompts]
    return replace(study, prompts=tuple(prompts))


def turned_round(study: Study) -> Study:
    """Return the study with its prompts in the opposite order."""
    return replace(study, prompts=study.prompts[::-1])


def renamed_items(study: Study) -> Study:
    """Return the study with other names of prompts, which sort otherwise."""
    n = len(study.prompts)
    prompts = [
        replace(one, key=f"q{(7 * at + 3) % 101:03}-{n}") for at, one in enumerate(study.prompts)
    ]
    return replace(study, prompts=tuple(prompts))


def split(study: Study) -> Study:
    """Return the study with two prompts of one declared cluster for each prompt, judged alike."""
    shift = 500
    prompts = [
        replace(one, key=f"{one.key}-{half}", content=one.content + half * shift, cluster=one.key)
        for one in study.prompts
        for half in (0, 1)
    ]
    verdicts = {
        (content + half * shift, a, b): verdict
        for (content, a, b), verdict in study.verdicts.items()
        for half in (0, 1)
    }
    return replace(study, prompts=tuple(prompts), verdicts=verdicts)


def with_a_tie(study: Study) -> Study:
    """Return the study with one more prompt, on which the judge calls every pair a tie."""
    content = 900
    tied = {
        (content, a, b): Verdict(0.5, 1.0) for a, b in combinations(range(len(study.models)), 2)
    }
    added = Prompt("tie", content, study.prompts[0].category)
    return replace(study, prompts=(*study.prompts, added), verdicts={**study.verdicts, **tied})


def mirrored(study: Study) -> Study:
    """Return the study with every verdict in favour of the other model."""
    verdicts = {
        key: None if verdict is None else replace(verdict, prefer=1.0 - verdict.prefer)
        for key, verdict in study.verdicts.items()
    }
    return replace(study, verdicts=verdicts)


def reordered_models(study: Study) -> Study:
    """Return the study with its models in the opposite order, which are shown in another order."""
    last = len(study.models) - 1
    verdicts = {
        (content, last - b, last - a): None
        if verdict is None
        else replace(verdict, prefer=1.0 - verdict.prefer)
        for (content, a, b), verdict in study.verdicts.items()
    }
    return replace(study, models=study.models[::-1], verdicts=verdicts)


def without_the_last_model(study: Study) -> Study:
    """Return the study without its last model."""
    last = len(study.models) - 1
    verdicts = {key: verdict for key, verdict in study.verdicts.items() if last not in key[1:]}
    return replace(study, models=study.models[:-1], verdicts=verdicts)
