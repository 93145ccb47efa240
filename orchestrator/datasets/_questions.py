"""Benchmarks of questions that models answer."""

from typing import ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.rows import Rows
from orchestrator.dataset.shapes import Row
from orchestrator.datasets._benchmark import BenchmarkKind, hub_file, picked, read
from orchestrator.plugin import About, File, Settings

_ALIGN_BENCH: Final = {
    version: File(
        name=name,
        path="https://raw.githubusercontent.com/THUDM/AlignBench/"
        f"5b79d4a84e566db26e755c719935c62a0e1b0527/data/{name}",
    )
    for version, name in (("1.1", "data_v1.1_release.jsonl"), ("1.0", "data_release.jsonl"))
}


class AlignBenchConfig(Settings):
    """Settings of `align_bench`."""

    version: Literal["1.0", "1.1"] = Field("1.1", description="1.1 has corrected references.")


class AlignBenchKind(BenchmarkKind[AlignBenchConfig]):
    """AlignBench: 683 questions in Chinese in 8 categories, each with a reference answer.

    Source: Liu et al., "AlignBench: Benchmarking Chinese Alignment of Large Language Models"
    (arXiv 2311.18743). Its answers are drawn at a temperature that depends on the category:
    `temperature_by_category: align_bench` where a method draws answers.
    """

    cites = ("liu2023alignbench",)
    about = About(
        licence="none stated on 2026-11-28: all rights reserved",
        size="about 1 MB",
        source="https://github.com/THUDM/AlignBench",
        files=(_ALIGN_BENCH["1.1"],),
    )
    fields: ClassVar = {
        "key": "question_id",
        "prompt": "question",
        "reference": "reference",
        "category": "category",
    }

    def rows(self) -> Rows:
        """Return the questions."""
        return read("align_bench", _ALIGN_BENCH[self.config.version])


_ALPACA_EVAL: Final = {
    baseline: hub_file("tatsu-lab/alpaca_eval", name)
    for baseline, name in (
        ("gpt4_turbo", "alpaca_eval_gpt4_baseline.json"),
        ("text_davinci_003", "alpaca_eval.json"),
    )
}


class AlpacaEvalConfig(Settings):
    """Settings of `alpaca_eval`."""

    baseline: Literal["gpt4_turbo", "text_davinci_003"] = Field(
        "gpt4_turbo",
        description="Version of AlpacaEval, 1 or 2, whose baseline answers are in `baseline`.",
    )


class AlpacaEvalKind(BenchmarkKind[AlpacaEvalConfig]):
    """AlpacaEval: 805 instructions, with the answers of a baseline in the column `baseline`.

    Source: Li et al., "AlpacaEval: An Automatic Evaluator of Instruction-following Models"
    (https://github.com/tatsu-lab/alpaca_eval). A model of a recipe may be the baseline:
    `models: {baseline: {answers: {field: baseline}}}`.
    """

    cites = ("li2023alpacaeval",)
    about = About(
        licence="CC BY-NC 4.0: not for commercial use",
        size="about 1 to 2 MB",
        source="https://huggingface.co/datasets/tatsu-lab/alpaca_eval",
        files=(_ALPACA_EVAL["gpt4_turbo"],),
    )
    fields: ClassVar = {"prompt": "instruction", "category": "dataset"}

    def rows(self) -> Rows:
        """Return the instructions with the answers of the baseline."""

        def make(row: Row) -> Row:
            return {
                "instruction": row["instruction"],
                "dataset": row.get("dataset"),
                "baseline": row["output"],
                "baseline_model": row.get("generator"),
            }

        return picked(read("alpaca_eval", _ALPACA_EVAL[self.config.baseline]), make)


# The files of FastChat's two benchmarks, Apache-2.0: https://github.com/lm-sys/FastChat,
# `fastchat/llm_judge/data`. The reference answers are text of GPT-4.

_FIELDS: Final = {name: name for name in ("key", "category", "turns", "reference")}


def _file(benchmark: str, name: str, revision: str, sha256: str, *others: str) -> File:
    """A file of a benchmark at a revision of the repository."""
    place = f"{revision}/fastchat/llm_judge/data/{benchmark}/{name}"
    path = f"https://raw.githubusercontent.com/lm-sys/FastChat/{place}"
    return File(name=name, path=path, sha256=sha256, others=others)


_QUESTIONS: Final = {
    "mt_bench": _file(
        "mt_bench",
        "question.jsonl",
        "589532dcfa83700f950b9aa3983416c543afabc0",
        "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
    ),
    "vicuna_bench": _file(
        "vicuna_bench",
        "question.jsonl",
        "589532dcfa83700f950b9aa3983416c543afabc0",
        "c248c5c98ba45bb0c2aadae2f270e643bd32679c6c306a3b2a503ac4254cdaa5",
    ),
}
_REFERENCES: Final = {
    # The branch, as the revision that last changed this file is not known here; its SHA-256 is.
    "mt_bench": _file(
        "mt_bench",
        "reference_answer/gpt-4.jsonl",
        "main",
        "f957a5bc977badb66885ec970e6cd08527845780313f0995764260e5777b9b3f",
        "reference_answer_gpt4.jsonl",
    ),
    "vicuna_bench": _file(
        "vicuna_bench",
        "reference_answer/gpt-4.jsonl",
        "09ee334fd8c6fd095312f64fc386de5a1a212ad6",
        "",
        "reference_answer_gpt4.jsonl",
    ),
}


def _about(kind: str, size: str) -> About:
    return About(
        licence="Apache-2.0; references are text of GPT-4",
        size=size,
        source="https://github.com/lm-sys/FastChat",
        files=(_QUESTIONS[kind],),
    )


def _fastchat(kind: str, n_turns: int | None, *, references: bool) -> Rows:
    """The rows of the questions, with the columns of `_FIELDS`.

    Questions have `question_id`, `category` and `turns`; references are in FastChat's form.

    Raises:
        DatasetError: If a file can't be had or is not as published.
    """
    known: dict[str, list[str]] = {}
    if references:
        answers = picked(
            read(kind, _REFERENCES[kind]),
            lambda row: {"key": str(row["question_id"]), "turns": row["choices"][0]["turns"]},
        )
        found = (answers.row(index) for index in range(len(answers)))
        known = {row["key"]: row["turns"] for row in found}

    def make(row: Row) -> Row:
        key = str(row["question_id"])
        turns = row["turns"][:n_turns]
        reference = known.get(key)
        return {
            "key": key,
            "category": row["category"],
            "turns": turns,
            "reference": None if reference is None else reference[: len(turns)],
        }

    return picked(read(kind, _QUESTIONS[kind]), make)


class FastChatSettings(Settings):
    """Settings of `vicuna_bench`."""

    references: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Use the answers of GPT-4 as references; available for math and coding, and "
        "for reasoning in MT-Bench.",
    )


class MtBenchConfig(FastChatSettings):
    """Settings of `mt_bench`."""

    turns: Literal[1, 2] = Field(2, description="Number of turns.")


class MtBenchKind(BenchmarkKind[MtBenchConfig]):
    """MT-Bench: 80 questions of two turns in 8 categories; reference answers of GPT-4 on demand.

    Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (arXiv
    2306.05685). Its answers are drawn at a temperature that depends on the category:
    `temperature_by_category: mt_bench` where a method draws answers.
    """

    cites = ("zheng2023judging",)
    about = _about("mt_bench", "49 kB, references 51 kB")
    fields: ClassVar = _FIELDS

    def rows(self) -> Rows:
        """Return the questions."""
        return _fastchat("mt_bench", self.config.turns, references=self.config.references)


class VicunaBenchKind(BenchmarkKind[FastChatSettings]):
    """Vicuna-Bench: 80 questions of one turn in 9 categories; reference answers of GPT-4 on demand.

    Source: https://lmsys.org/blog/2023-03-30-vicuna/.
    """

    cites = ("chiang2023vicuna",)
    about = _about("vicuna_bench", "13 kB, references 11 kB")
    fields: ClassVar = _FIELDS

    def rows(self) -> Rows:
        """Return the questions."""
        return _fastchat("vicuna_bench", None, references=self.config.references)
