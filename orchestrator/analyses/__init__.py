"""Analyses across methods: a file each, or a class in a file that two share."""

from typing import Final

KINDS: Final = {
    "judge_accuracy": "_judge_accuracy:JudgeAccuracyAnalysis",
    "judge_calibration": "_judge_accuracy:JudgeCalibrationAnalysis",
}
