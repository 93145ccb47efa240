import pytest

from orchestrator.backend import Capabilities
from orchestrator.contracts.method import Stage
from orchestrator.runner.models.identity import missing

EVERYTHING = Capabilities(score=True, choose="exact", features=frozenset({"entropy"}))


@pytest.mark.parametrize("ask", ["generate", "score", "choose", "similarity"])
def test_a_server_that_can_do_it_lacks_nothing(ask):
    assert missing(Stage("s", "m", ask, 1), EVERYTHING) == ""


@pytest.mark.parametrize("ask", ["generate", "score", "choose"])
def test_what_a_server_cannot_do_is_said_with_a_remedy(ask):
    nothing = Capabilities(generate=False)
    assert missing(Stage("s", "m", ask, 1), nothing).startswith(f"it cannot {ask}; ")


def test_a_feature_that_a_server_does_not_give_is_named():
    stage = Stage("s", "m", "score", 1, features=("attention_entropy", "entropy"))
    assert "does not provide attention_entropy; " in missing(stage, EVERYTHING)
