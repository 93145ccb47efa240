"""Calibration of judges: confidence against accuracy, Brier score, ECE."""

from orchestrator.plugin import Analysis, Context, Table
from orchestrator.ranking.winners import JudgedWinner, calibrated, judging_sources, tables


class Config(JudgedWinner):
    """Settings of `judge_calibration`."""


class JudgeCalibrationAnalysis(Analysis[Config]):
    """Confidence against accuracy, Brier score, ECE."""

    def summarise(self, context: Context) -> list[Table]:
        """A line a judge and setting, then confidence against accuracy, bin by bin."""
        config = self.config
        sources = judging_sources(context, config.methods)
        return tables(list(calibrated(context, sources, config.winner)))
