"""Analyses across methods: a file each, or a class in a file that several share."""

from typing import Final

KINDS: Final = {
    "human_labels": "_few_labels:HumanLabelsAnalysis",
    "judge_accuracy": "_judge_accuracy:JudgeAccuracyAnalysis",
    "judge_prompts": "_judge_accuracy:JudgePromptsAnalysis",
    "leaderboard": "_orders:LeaderboardAnalysis",
    "same_winner": "_orders:SameWinnerAnalysis",
    "selective": "_few_labels:SelectiveAnalysis",
    "validation": "_orders:ValidationAnalysis",
}
