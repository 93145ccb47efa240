"""Methods that an analysis names are looked up before anything is asked."""

import pytest

from orchestrator import Recipe, RecipeError, contracts, plugins
from orchestrator.contracts.method import Analysis
from orchestrator.ranking.scores import ScoreRef

MODELS = {name: {"server": "fake", "weights": f"small:0.{n}"} for n, name in enumerate("abc", 1)}


def settings_that_name():
    """Each setting of a bundled analysis that names methods, with a wrong name."""
    for kind in plugins.kinds(plugins.ANALYSES):
        config = contracts.load(Analysis, kind).Config
        for name, field in config.model_fields.items():
            of_scores = ScoreRef.__name__ in str(field.annotation)
            if name == "method":
                yield (
                    kind,
                    {name: "pointwis"},
                    "unknown method 'pointwis'; did you mean 'pointwise'",
                )
            elif name == "methods":
                yield kind, {name: ["pointwis"]}, "unknown method 'pointwis'; did you mean"
            elif of_scores:
                ref = {"method": "pointwis"}
                several = "tuple" in str(field.annotation)
                yield kind, {name: [ref, ref] if several else ref}, "unknown method 'pointwis'"


CASES = list(settings_that_name())


@pytest.mark.parametrize(("kind", "named", "said"), CASES)
def test_what_an_analysis_names_is_looked_up_at_once(kind, named, said):
    with pytest.raises(RecipeError, match=said):
        Recipe(
            models=MODELS,
            dataset=[{"prompt": "x"}],
            methods=[{"kind": "pointwise", "judges": ["c"]}, "probdiff"],
            analyses=[{"kind": kind, **named}],
        )


def test_most_analyses_name_something():
    assert len({kind for kind, *_ in CASES}) > 5


def test_a_method_with_a_fault_of_its_own_is_not_unknown():
    with pytest.raises(RecipeError, match="scale") as raised:
        Recipe(
            models=MODELS,
            dataset=[{"prompt": "x"}],
            methods=[{"kind": "pointwise", "judges": ["c"], "scale": "none"}],
            analyses=[{"kind": "sharpening", "methods": ["pointwise"]}],
        )
    assert "unknown method" not in str(raised.value)
