import numpy as np
import pytest

from orchestrator.statistics.bradley_terry import fit_bradley_terry, to_elo

MODELS = "ABC"


def wins_of(battles):
    """The win matrix of "A>B" and "A=B" counts; a tie is half a win each."""
    wins = np.zeros((3, 3))
    for battle, n in battles.items():
        one, two = MODELS.index(battle[0]), MODELS.index(battle[2])
        share = 1.0 if battle[1] == ">" else 0.5
        wins[one, two] += share * n
        wins[two, one] += (1.0 - share) * n
    return wins


def test_bradley_terry(reference):
    inputs, outputs = reference("bt.1")
    wins = wins_of(inputs["battles"])
    assert wins.tolist() == outputs["wins_matrix"]
    fit = fit_bradley_terry(wins)
    assert fit.strengths == pytest.approx(outputs["strength_natural_mean0"], abs=1e-9)
    elo = to_elo(fit.strengths)
    assert elo == pytest.approx(outputs["elo_scale_400/ln10_mean1000"], abs=1e-7)
