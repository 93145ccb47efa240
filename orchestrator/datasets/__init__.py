"""Datasets: a file a kind, or a class in a file that several kinds share.

A kind is a class derived from `orchestrator.plugin.DatasetKind`.
"""

from typing import Final

KINDS: Final = {
    "align_bench": "_questions:AlignBenchKind",
    "alpaca_eval": "_questions:AlpacaEvalKind",
    "csv": "_files:CsvKind",
    "excel": "_files:ExcelKind",
    "help_steer_2": "_preferences:HelpSteer2Kind",
    "json": "_files:JsonKind",
    "jsonl": "_files:JsonlKind",
    "judge_bench": "_preferences:JudgeBenchKind",
    "llm_bar": "_preferences:LlmBarKind",
    "mt_bench": "_questions:MtBenchKind",
    "mt_bench_human": "_preferences:MtBenchHumanKind",
    "nectar": "_preferences:NectarKind",
    "parquet": "_files:ParquetKind",
    "reward_bench": "_preferences:RewardBenchKind",
    "reward_bench_2": "_preferences:RewardBench2Kind",
    "vicuna_bench": "_questions:VicunaBenchKind",
}
"""Kinds that share a file, as `file:Class`."""
