"""Places by an adaptive test: the table says of which win rate its numbers are."""

import pytest

from orchestrator.ranking.orders import places_table
from orchestrator.statistics.adaptive import AdaptiveTest

MODELS = ("a", "b", "c")


@pytest.mark.parametrize(
    ("baseline", "top", "heading", "asked"),
    [("", None, "mean win rate", "place"), ("", 1, "mean win rate", "among the top 1"),
     ("b", None, "win rate against it", "better")],
)  # fmt: skip
def test_the_columns_name_what_was_asked(baseline, top, heading, asked):
    place = MODELS.index(baseline) if baseline else None
    test = AdaptiveTest(3, error=0.05, n_prompts=20, share=1.0, top=top, baseline=place)
    table = places_table(
        "m", "j", MODELS, test, error=0.05, n_items=20, n_clusters=None, block=5, top=top,
        baseline=baseline, is_finished=False, warning="",
    )  # fmt: skip
    names = [column.name for column in table.columns]
    assert names[:3] == ["model", heading, asked]
    assert [row[0] for row in table.rows] == [one for one in MODELS if one != baseline]
