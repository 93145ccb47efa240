"""Benchmarks of judges and reward models: prompts with answers of which the better one is known.

The better answer is the column `chosen`, a worse one `rejected`; the analysis `judge_benchmark`
gives the papers' tables of those that have a right and a wrong answer.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from orchestrator.dataset.files import joined
from orchestrator.dataset.rows import Rows
from orchestrator.dataset.shapes import Row
from orchestrator.datasets._benchmark import (
    BenchmarkKind,
    SubsetSettings,
    chosen_subsets,
    converted,
    hub_file,
    of_subsets,
    pair_of,
    picked,
    read,
)
from orchestrator.plugin import About, DatasetError, File, Settings


class RewardBenchKind(BenchmarkKind[SubsetSettings]):
    """RewardBench: 2,985 prompts with a chosen and a rejected answer, in 23 subsets.

    Source: Lambert et al. 2024, "RewardBench: Evaluating Reward Models for Language Modeling"
    (arXiv 2403.13787), its filtered split.
    """

    cites = ("lambert2024rewardbench",)
    about = About(
        licence="ODC-BY as the hub states; subsets have their own",
        size="about 3 MB",
        source="https://huggingface.co/datasets/allenai/reward-bench",
        files=(hub_file("allenai/reward-bench", "data/filtered-00000-of-00001.parquet"),),
    )
    fields: ClassVar = {"prompt": "prompt", "category": "subset", "key": "id"}

    def rows(self) -> Rows:
        """Return the prompts of the subsets."""
        rows = read("reward_bench", self.about.files[0])
        return of_subsets(rows, "subset", self.config.subsets)


class RewardBench2Kind(BenchmarkKind[SubsetSettings]):
    """RewardBench 2: prompts with one right and three wrong answers, in five subsets.

    Source: Malik et al. 2025, "RewardBench 2: Advancing Reward Model Evaluation" (arXiv
    2506.01937). The wrong answers are the columns `rejected_1`, `rejected_2` and `rejected_3`. The
    subset Ties, whose prompts have up to 26 right answers and a score of their own, is left out.
    """

    cites = ("malik2025rewardbench2",)
    about = About(
        licence="ODC-BY as the hub states",
        size="about 15 MB",
        source="https://huggingface.co/datasets/allenai/reward-bench-2",
        files=(hub_file("allenai/reward-bench-2", "data/test-00000-of-00001.parquet"),),
    )
    fields: ClassVar = {"prompt": "prompt", "category": "subset", "key": "id"}

    def rows(self) -> Rows:
        """Return the prompts of the subsets."""

        def make(row: Row) -> Row:
            (chosen,), wrong = row["chosen"], row["rejected"]
            made = {name: row[name] for name in ("id", "prompt", "subset")} | {"chosen": chosen}
            return made | {f"rejected_{rank + 1}": wrong[rank] for rank in range(3)}

        rows = read("reward_bench_2", self.about.files[0])
        wanted = self.config.subsets or ("Factuality", "Precise IF", "Math", "Safety", "Focus")
        return picked(of_subsets(rows, "subset", wanted), make)


_JUDGE_BENCH: Final = {
    name: File(
        name=f"{name}.jsonl",
        path="https://raw.githubusercontent.com/ScalerLab/JudgeBench/"
        "12a499c5c29f06940d259b49250fca627d2a0ee5/data/dataset=judgebench,response_model="
        f"{model}.jsonl",
    )
    for name, model in (("gpt", "gpt-4o-2024-05-13"), ("claude", "claude-3-5-sonnet-20240620"))
}


class JudgeBenchConfig(SubsetSettings):
    """Settings of `judge_bench`."""

    answers: Literal["gpt", "claude"] = Field(
        "gpt", description="Whose answers: those of GPT-4o or of Claude 3.5 Sonnet."
    )


class JudgeBenchKind(BenchmarkKind[JudgeBenchConfig]):
    """JudgeBench: 350 questions with a right and a wrong answer by GPT-4o, or 270 by Claude 3.5.

    Source: Tan et al. 2024, "JudgeBench: A Benchmark for Evaluating LLM-Based Judges" (arXiv
    2410.12784).
    """

    cites = ("tan2024judgebench",)
    about = About(
        licence="MIT as the hub states",
        size="about 2 MB",
        source="https://github.com/ScalerLab/JudgeBench",
        files=(_JUDGE_BENCH["gpt"],),
    )
    fields: ClassVar = {"prompt": "question", "category": "source", "key": "pair_id"}

    def rows(self) -> Rows:
        """Return the questions of the subsets."""

        def make(row: Row) -> Row:
            first = {"A>B": True, "B>A": False}[row["label"]]
            answers = pair_of(row["response_A"], row["response_B"], is_first_better=first)
            kept = {name: row[name] for name in ("pair_id", "question", "source")}
            return {**kept, **answers, "response_model": row.get("response_model")}

        rows = picked(read("judge_bench", _JUDGE_BENCH[self.config.answers]), make)
        return of_subsets(rows, "source", self.config.subsets)


_ADVERSARIAL: Final = ("Neighbor", "GPTInst", "GPTOut", "Manual")
_LLM_BAR: Final = {
    subset: File(
        name=f"{subset}.json",
        path="https://raw.githubusercontent.com/princeton-nlp/LLMBar/"
        f"caa7bee794bfed74baed038b99229fa3f0c4c511/Dataset/LLMBar/{folder}{subset}/dataset.json",
    )
    for subset, folder in {"Natural": "", **dict.fromkeys(_ADVERSARIAL, "Adversarial/")}.items()
}


class LlmBarKind(BenchmarkKind[SubsetSettings]):
    """LLMBar: 419 instructions with an answer that follows them and one that does not.

    Source: Zeng et al. 2024, "Evaluating Large Language Models at Evaluating Instruction Following"
    (arXiv 2310.07641).
    """

    cites = ("zeng2024llmbar",)
    about = About(
        licence="MIT",
        size="about 500 kB",
        source="https://github.com/princeton-nlp/LLMBar",
        files=tuple(_LLM_BAR.values()),
    )
    fields: ClassVar = {"prompt": "input", "category": "subset"}

    def rows(self) -> Rows:
        """Return the instructions of the subsets."""

        def make(subset: str, row: Row) -> Row:
            first = {1: True, 2: False}[row["label"]]
            answers = pair_of(row["output_1"], row["output_2"], is_first_better=first)
            return {"input": row["input"], "subset": subset, **answers}

        names = chosen_subsets(_LLM_BAR, self.config.subsets, "llm_bar")
        parts = [picked(read("llm_bar", _LLM_BAR[name]), partial(make, name)) for name in names]
        return joined(parts, "llm_bar")


class NectarConfig(Settings):
    """Settings of `nectar`."""

    n: int | None = Field(1000, ge=1, description="Number of prompts, drawn at random; null: all.")
    seed: int = Field(0, description="Seed of the choice.")


class NectarKind(BenchmarkKind[NectarConfig]):
    """Nectar: prompts with seven answers, ranked by GPT-4.

    Source: Zhu et al. 2023, "Starling-7B: Improving LLM Helpfulness & Harmlessness with RLAIF". The
    answers are the columns `rank_1`, the best one, to `rank_7`, of the first Parquet file of the
    hub. The paper of the judgment distribution uses the first 1,000 of the library `datasets`'
    shuffle by seed 17; here `seed` decides.
    """

    cites = ("zhu2023starling",)
    about = About(
        licence="Apache-2.0; not to compete with OpenAI",
        size="some hundred MB",
        source="https://huggingface.co/datasets/berkeley-nest/Nectar",
        files=(converted("berkeley-nest/Nectar", "default", "train", 0, "train-0.parquet"),),
    )
    fields: ClassVar = {"prompt": "prompt"}

    def rows(self) -> Rows:
        """Return the prompts that are drawn."""

        def make(row: Row) -> Row:
            by_rank = sorted(row["answers"], key=lambda answer: float(answer["rank"]))
            # A conversation of several turns stays as it is written there.
            prompt = str(row["prompt"]).removeprefix("\n\nHuman: ").removesuffix("\n\nAssistant: ")
            ranked = {f"rank_{rank + 1}": by_rank[rank]["answer"] for rank in range(7)}
            return {"prompt": prompt, **ranked}

        rows = read("nectar", self.about.files[0])
        n, total = self.config.n, len(rows)
        if n is None:
            return picked(rows, make)
        if n > total:
            raise DatasetError(
                f"nectar: {n:,} requested, only {total:,} available; set dataset: {{n: null}}"
            )
        rng = np.random.default_rng(self.config.seed)
        return picked(rows, make, sorted(rng.choice(total, size=n, replace=False).tolist()))


_HELPFULNESS: Final = "helpfulness"


class HelpSteer2Kind(BenchmarkKind[Settings]):
    """HelpSteer2: 519 pairs of answers that people rated for helpfulness.

    Source: Wang et al. 2024, "HelpSteer2: Open-source dataset for training top-performing reward
    models" (arXiv 2406.08673). Each prompt has two rated answers. The better one by mean
    helpfulness is `chosen`; pairs rated alike are left out. The split is that of validation.
    """

    cites = ("wang2024helpsteer2",)
    about = About(
        licence="CC BY 4.0",
        size="about 1 MB",
        source="https://huggingface.co/datasets/nvidia/HelpSteer2",
        files=(converted("nvidia/HelpSteer2", "default", "validation", 0, "validation.parquet"),),
    )
    fields: ClassVar = {"prompt": "prompt"}

    def rows(self) -> Rows:
        """Return the pairs that are not rated alike."""
        rows = read("help_steer_2", self.about.files[0])

        def make(pair: Row) -> Row:
            row, other = pair["first"], pair["second"]
            is_first = row[_HELPFULNESS] > other[_HELPFULNESS]
            ratings = pair_of(row[_HELPFULNESS], other[_HELPFULNESS], is_first_better=is_first)
            return {
                "prompt": row["prompt"],
                **pair_of(row["response"], other["response"], is_first_better=is_first),
                **{f"{name}_{_HELPFULNESS}": value for name, value in ratings.items()},
            }

        # Places of the first of two rows of one prompt that are not rated alike.
        places, index = list[int](), 0
        while index + 1 < len(rows):
            one, two = rows.row(index), rows.row(index + 1)
            is_pair = one["prompt"] == two["prompt"]
            if is_pair and one[_HELPFULNESS] != two[_HELPFULNESS]:
                places.append(index)
            index += 2 if is_pair else 1
        pairs = replace(
            rows, row=lambda place: {"first": rows.row(place), "second": rows.row(place + 1)}
        )
        return picked(pairs, make, places)


_FIRST_QUESTION: Final = 81
_CATEGORIES: Final = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip
"""Of MT-Bench's questions 81 to 160, ten each."""


class MtBenchHumanKind(BenchmarkKind[SubsetSettings]):
    """MT-Bench human judgments: votes of experts on the answers of two models to the first turn.

    Source: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (arXiv
    2306.05685). The answers are the columns `first` and `second`, the vote is `better`: "first",
    "second" or "tie". Second turns are left out: their questions follow answers of the two models.
    """

    cites = ("zheng2023judging",)
    about = About(
        licence="CC BY 4.0",
        size="about 1 MB",
        source="https://huggingface.co/datasets/lmsys/mt_bench_human_judgments",
        files=(
            converted("lmsys/mt_bench_human_judgments", "default", "human", 0, "human.parquet"),
        ),
    )
    fields: ClassVar = {"prompt": "prompt", "category": "category", "cluster": "question_id"}

    def rows(self) -> Rows:
        """Return the votes on first turns, of the categories."""

        def make(row: Row) -> Row:
            question, one, two = row["question_id"], row["conversation_a"], row["conversation_b"]
            return {
                "prompt": one[0]["content"],
                "category": _CATEGORIES[(question - _FIRST_QUESTION) // 10],
                "question_id": question,
                "first": one[1]["content"],
                "second": two[1]["content"],
                "better": {"model_a": "first", "model_b": "second"}.get(row["winner"], "tie"),
                "model_a": row["model_a"],
                "model_b": row["model_b"],
                "voter": row["judge"],
            }

        votes = read("mt_bench_human", self.about.files[0])
        first = [place for place in range(len(votes)) if votes.row(place)["turn"] == 1]
        return of_subsets(picked(votes, make, first), "category", self.config.subsets)
