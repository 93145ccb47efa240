"""Advice on judges that can't be trusted: what the methods of a recipe have settings for."""

import numpy as np
import pytest

from orchestrator.runner.results.tables import followable_of
from orchestrator.statistics.trust import Judgments, assess

UNLABELLED = Judgments(
    masses=np.full((40, 2), 1e-3),
    decision_ab=np.ones(0),
    decision_ba=np.ones(0),
    clusters=np.zeros(0, np.int64),
    n_units=40,
    n_missing=0,
)
SETTINGS = ("prefix", "examples", "fewer labels", "chain_of_thought")


def advised(entry):
    """The settings that a method is advised to use."""
    settings = {"methods": [{"judges": ["judge"], **entry}]}
    name = entry.get("name", entry["kind"])
    (trust,) = followable_of({name: [assess("judge", UNLABELLED)]}, settings)[name]
    assert {"another prompt", "another judge"} <= {*trust.advice}
    return [name for name in SETTINGS if any(name in line for line in trust.advice)]


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        ({"kind": "pairwise_ranking"}, SETTINGS),
        ({"kind": "pairwise_ranking", "name": "mine", "prefix": "["}, SETTINGS[1:]),
        ({"kind": "pointwise", "chain_of_thought": True}, SETTINGS[:3]),
        # Its prompts are those of a paper.
        ({"kind": "auto_j"}, ()),
        # What a kind that is not known here has, nobody can tell.
        ({"kind": "elsewhere"}, SETTINGS),
    ],
)
def test_only_settings_that_a_method_has_and_does_not_use_are_advised(entry, settings):
    assert advised(entry) == [*settings]
