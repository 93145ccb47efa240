"""Temperatures at which benchmarks want their answers drawn, by category."""

from typing import Final

_WRITTEN: Final = 0.7
_BETWEEN: Final = 0.1

# FastChat, `llm_judge/common.py`, as ProbDiff's code applies it.
MT_BENCH: Final = {
    "writing": _WRITTEN,
    "roleplay": _WRITTEN,
    "reasoning": 0.0,
    "math": 0.0,
    "coding": 0.0,
    "extraction": 0.0,
    "stem": _BETWEEN,
    "humanities": _BETWEEN,
}
# AlignBench's own settings; the categories are writing, role play and open questions, and the rest.
ALIGN_BENCH: Final = {
    "文本写作": _WRITTEN,
    "角色扮演": _WRITTEN,
    "综合问答": _WRITTEN,
    "专业能力": _BETWEEN,
    "数学计算": _BETWEEN,
    "基本任务": _BETWEEN,
    "逻辑推理": _BETWEEN,
    "中文理解": _BETWEEN,
}
BY_BENCHMARK: Final = {"mt_bench": MT_BENCH, "align_bench": ALIGN_BENCH}
"""By the kind of the dataset."""
