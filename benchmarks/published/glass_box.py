"""Table 1 of the glass-box paper from what its authors released, beside what it prints.

`python benchmarks/published/glass_box.py SelfEval/llm_judge/data`, of a clone of
HuihuiChyan/SelfEval (at d73bd7e; no licence on 2026-11-27), correlates the released numbers of each
answer with the grades of GPT-4 by our own estimators. No model is needed. Grades that were not read
are -1 there and take part, as they did for its authors. A second table has the printed lines that
the files do not give.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from orchestrator.judgment.glass_box import combo
from orchestrator.statistics.association import Kind, association

KINDS: tuple[Kind, ...] = ("pearson", "kendall", "spearman")
BENCHMARKS = {"mt_bench": ("MT-Bench", 2), "vicuna_bench": ("Vicuna-Bench", 1)}
"""Folder of each benchmark: its name in print, and the turns that are graded."""
MODELS = {"llama2-7b-chat": "LLaMA2-7B-Chat", "vicuna-7b": "Vicuna-7B"}
HEADER = (
    ("Model", "Method", "MT-Bench", "Vicuna-Bench", "Average"),
    ("Pearson", "Kendall", "Spearman", "Pearson", "Kendall", "Spearman"),
)
"""The two lines of the printed header; the second stands under the benchmarks."""
PRINTED = """
LLaMA2-7B-Chat Auto-J          .5024 .4092 .5112 .5233 .3403 .3773 .5129
LLaMA2-7B-Chat GPT-3.5-Turbo   .4342 .3982 .5033 .6695 .3858 .4330 .5519
LLaMA2-7B-Chat Self-Generation .1492 .0992 .1976 .1415 .1600 .1023 .1454
LLaMA2-7B-Chat SentProb        .2034 .2099 .3067 .4970 .2304 .3192 .3502
LLaMA2-7B-Chat Softmax-Ent     .4666 .4395 .5978 .3730 .2441 .3223 .4198
LLaMA2-7B-Chat Softmax-Var     .5612 .4695 .6239 .6506 .4534 .5894 .6059
LLaMA2-7B-Chat Softmax-combo   .5879 .4638 .6222 .6209 .4352 .5650 .6044
LLaMA2-7B-Chat DecEnsem-Exp    .4105 .3877 .3526 .5606 .3545 .5051 .4856
LLaMA2-7B-Chat DecEnsem-Var    .3535 .3215 .3023 .2504 .1615 .3197 .3020
LLaMA2-7B-Chat PrmEnsem-Exp    .4242 .3054 .3692 .5381 .3359 .4675 .4812
LLaMA2-7B-Chat PrmtEnsem-Var   .1695 .1692 .2441 .1321 .0895 .1250 .1508
LLaMA2-7B-Chat Attn-Ent-Min    .1444 .1150 .1563 .1182 .1161 .1584 .1313
LLaMA2-7B-Chat Attn-Ent-Avg    .1361 .1094 .1475 .0977 .1181 .1600 .1169
Vicuna-7B      Auto-J          .5673 .4302 .5405 .6003 .4818 .5345 .5838
Vicuna-7B      GPT3.5-Turbo    .4812 .4358 .5353 .6946 .5901 .6733 .5879
Vicuna-7B      Self-Generation .1636 .1753 .1498 .1985 .1319 .1709 .1811
Vicuna-7B      SentProb        .2350 .1706 .2547 .4606 .2545 .3051 .3478
Vicuna-7B      Softmax-Ent     .4690 .3003 .4291 .6379 .2851 .3855 .5535
Vicuna-7B      Softmax-Var     .4632 .3171 .4403 .6146 .2879 .3772 .5389
Vicuna-7B      Softmax-combo   .5358 .3578 .5022 .6856 .3276 .4270 .6107
Vicuna-7B      DecEnsem-Exp    .4518 .2645 .2168 .5099 .5137 .6548 .4809
Vicuna-7B      DecEnsem-Var    .2091 .1476 .1622 .3246 .2931 .3014 .2669
Vicuna-7B      PrmEnsem-Exp    .4414 .2677 .2229 .4897 .4873 .6312 .4656
Vicuna-7B      PrmEnsem-Var    .2353 .0875 .1239 .2028 .1860 .3201 .2191
Vicuna-7B      Attn-Ent-Avg    .0355 .0234 .0043 .2254 .1981 .2567 .1305
Vicuna-7B      Attn-Ent-Min    .0463 .0307 .0530 .2161 .1888 .2459 .1312
"""
"""Table 1 as it stands in print, which has absolute values: both Attn-Ent lines of Vicuna-7B, and
`PrmtEnsem-Var` and `GPT3.5-Turbo`, are its own."""
FILES = {
    "SentProb": "logprobs",
    "Softmax-Ent": "logprobs-entropy",
    "Softmax-Var": "logprobs-variance",
    "DecEnsem-Exp of Softmax-Ent": "ensemble-temper-logprobs-entropy",
    "DecEnsem-Exp of Softmax-Var": "ensemble-temper-logprobs-variance",
    "PrmEnsem-Exp of Softmax-Ent": "ensemble-prompt-logprobs-entropy",
    "PrmEnsem-Exp of Softmax-Var": "ensemble-prompt-logprobs-variance",
    "PrmtEnsem-Var": "ensemble-logprobs-vars",
    "Attn-Ent-Min": "attention-entropy",
    "Attn-Ent-Avg": "attention-minimal",
}
"""The end of each file's name by what it holds; ensembles are of the code's own two features.

The last three are in the first commit alone, 6f86769; the two of attention are exchanged."""
WHY_NOT = {
    "Auto-J": "grades by the judge are in no file",
    "GPT": "grades by the judge are in no file",
    "Self-Generation": "grades by the judge are in no file",
    "Ensem-Var": "a file has one number an answer, the mean of the passes",
    "Attn-Ent": "attention is in no file",
    "": "the file of these numbers is not there",
}
"""Why a printed line can't be computed, by a part of its name; the first that fits."""

Point = tuple[int, int]
"""Question and turn."""


class Line(NamedTuple):
    """A line of the table.

    Attributes:
        model: As printed.
        method: As printed; our own words where print has no such line.
        found: Pearson's, Kendall's and Spearman's coefficients by folder of the benchmark.
    """

    model: str
    method: str
    found: dict[str, tuple[float, ...]]

    @property
    def average(self) -> float | None:
        """Mean of Pearson's over both benchmarks; None where one of them has no such file."""
        if len(self.found) < len(BENCHMARKS):
            return None
        return mean(triple[0] for triple in self.found.values())


def printed() -> dict[tuple[str, str], tuple[float, ...]]:
    """The seven numbers of each line in print, by model and method."""
    split = [line.split() for line in PRINTED.strip().splitlines()]
    return {(model, method): tuple(map(float, numbers)) for model, method, *numbers in split}


def grades(folder: Path, model: str) -> dict[Point, float]:
    lines = (folder / "model_judgment" / "gpt-4_single.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        (row["question_id"], row["turn"]): row["score"] for row in rows if row["model"] == model
    }


def _graded(folder: Path) -> bool:
    return (folder / "model_judgment").is_dir()


def released(folder: Path, model: str, ending: str, n_turns: int) -> dict[Point, float]:
    """The numbers of a file by answer; {} where it is not there, the last of what stands twice.

    Lists in place of numbers, which some files of the first commit hold, are left out.
    """
    path = folder / "model_answer" / f"{model}-{ending}.jsonl"
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {
        (row["question_id"], turn): value
        for row in rows
        for turn, value in enumerate(row["evaluations"][:n_turns], 1)
        if isinstance(value, float)
    }


def lengths(folder: Path, model: str, n_turns: int) -> dict[Point, float]:
    """Characters of each answer; {} where there are none of the model."""
    if not (folder / "model_answer" / f"{model}.jsonl").exists():
        return {}
    lines = (folder / "model_answer" / f"{model}.jsonl").read_text("utf-8").splitlines()
    return {
        (row["question_id"], turn): float(len(text))
        for row in map(json.loads, lines)
        for turn, text in enumerate(row["choices"][0]["turns"][:n_turns], 1)
    }


def correlations(values: dict[Point, float], gold: dict[Point, float]) -> tuple[float, ...]:
    points = sorted(point for point in values.keys() & gold.keys() if isfinite(values[point]))
    value, known = (np.array([one[point] for point in points]) for one in (values, gold))
    return tuple(association(value, known, kind) for kind in KINDS)


def standardised_sum(
    entropy: dict[Point, float], variance: dict[Point, float]
) -> dict[Point, float]:
    """Softmax-combo of the code's own two features, both of which rise with quality."""
    points = sorted(entropy.keys() & variance.keys())
    if not points:
        return {}
    features = {
        "code_logprobs_entropy": [entropy[point] for point in points],
        "code_logprobs_variance": [variance[point] for point in points],
    }
    return dict(zip(points, combo(features).tolist(), strict=True))


def lines(data: Path) -> Iterator[Line]:
    """Every line that the released files give."""
    for model, name in MODELS.items():
        found: dict[str, dict[str, tuple[float, ...]]] = {}
        for bench, (_, n_turns) in BENCHMARKS.items():
            if not _graded(data / bench):
                continue
            gold = grades(data / bench, model)
            values = {
                method: released(data / bench, model, ending, n_turns)
                for method, ending in FILES.items()
            }
            values["length in characters (ours)"] = lengths(data / bench, model, n_turns)
            values["Softmax-combo"] = standardised_sum(values["Softmax-Ent"], values["Softmax-Var"])
            for method, points in values.items():
                if points:
                    found.setdefault(method, {})[bench] = correlations(points, gold)
        yield from (Line(name, method, triples) for method, triples in found.items())


def left_out(data: Path) -> Iterator[tuple[str, str, str, str]]:
    """Printed lines that the files do not give: model, methods, benchmarks and the reason."""
    made = {
        (line.model, line.method.partition(" of ")[0], bench)
        for line in lines(data)
        for bench in line.found
    }
    groups: dict[tuple[str, str, str], list[str]] = {}
    for model, method in printed():
        absent = [
            name for bench, (name, _) in BENCHMARKS.items() if (model, method, bench) not in made
        ]
        if absent:
            reason = next(why for part, why in WHY_NOT.items() if part in method)
            groups.setdefault((model, " and ".join(absent), reason), []).append(method)
    for (model, benchmarks, reason), methods in groups.items():
        yield model, ", ".join(methods), benchmarks, reason


def left_out_table(data: Path) -> str:
    """Printed lines that the files do not give, as Markdown."""
    rows = [("model", "printed lines", "not from the files of", "why"), ("---",) * 4]
    return "".join(f"| {' | '.join(row)} |\n" for row in [*rows, *left_out(data)])


def shown(number: float | None, in_print: float | None) -> str:
    beside = "" if in_print is None else f" ({in_print:.4f})"
    return ("-" if number is None else f"{number:+.4f}") + beside


def table(data: Path) -> str:
    """Every line as Markdown; behind each number, in brackets, the printed one."""
    kinds = [f"{BENCHMARKS[bench][0]} {kind.title()}" for bench, kind in product(BENCHMARKS, KINDS)]
    rows = [["model", "method", *kinds, "Average"], ["---"] * (3 + len(kinds))]
    prints = printed()
    for line in lines(data):
        in_print: tuple[float | None, ...] = prints.get((line.model, line.method), (None,) * 7)
        numbers: list[float | None] = []
        for bench in BENCHMARKS:
            numbers += line.found.get(bench, (None,) * 3)
        cells = [shown(*pair) for pair in zip([*numbers, line.average], in_print, strict=True)]
        rows.append([line.model, line.method, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="llm_judge/data of a clone of SelfEval")
    data = parser.parse_args().data
    if not any(_graded(data / bench) for bench in BENCHMARKS):
        parser.error(f"{data} has no {' and no '.join(BENCHMARKS)}: give llm_judge/data of a clone")
    print(table(data), end="")
    print(f"\n{left_out_table(data)}", end="")


if __name__ == "__main__":
    main()
