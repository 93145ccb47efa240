"""Methods that an analysis names are looked up before anything is asked."""

from functools import partial

import pytest

from orchestrator import Recipe, RecipeError, contracts, plugins
from orchestrator.analyses._gold import Gold
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


def settings_with_columns():
    """Each setting of a bundled analysis that names a column, as a function of its name."""
    for kind in plugins.kinds(plugins.ANALYSES):
        config = contracts.load(Analysis, kind).Config
        for name, field in config.model_fields.items():
            said = str(field.annotation)
            n = 2 if "tuple" in said else 1
            if ScoreRef.__name__ in said or Gold.__name__ in said:
                named = partial(lambda name, n, ref: {name: [ref, ref] if n > 1 else ref}, name, n)
                yield pytest.param(kind, named, id=f"{kind}.{name}")
            elif name == "column":
                yield pytest.param(kind, dict, id=kind)


COLUMNS = list(settings_with_columns())


def recipe_with(entry):
    return Recipe(
        models=MODELS,
        dataset=[{"prompt": "x"}],
        methods=[{"kind": "pointwise", "judges": ["c"]}, "probdiff"],
        analyses=[entry],
    )


@pytest.mark.parametrize(("kind", "named"), COLUMNS)
@pytest.mark.parametrize(
    ("method", "column", "near"),
    [
        ("probdiff", "dd", "d"),
        ("probdiff", "confidnce", "confidence"),
        ("pointwise", "meann", "mean"),
    ],
)
def test_columns_are_looked_up_at_once(kind, named, method, column, near):
    said = f"no numeric column '{column}'; did you mean '{near}"
    with pytest.raises(RecipeError, match=said):
        recipe_with({"kind": kind, **named({"method": method, "column": column})})


@pytest.mark.parametrize(("kind", "named"), COLUMNS)
@pytest.mark.parametrize("column", ["d", "confidence", "ell_first", "unchanged"])
def test_columns_of_numbers_and_derived_scores_are_taken(kind, named, column):
    try:
        recipe_with({"kind": kind, **named({"method": "probdiff", "column": column})})
    except RecipeError as error:
        assert "numeric column" not in str(error)  # noqa: PT017 (other settings are missing)


def test_a_baseline_is_among_the_scores():
    scores = {"scores": [{"method": "probdiff", "column": "d"}, {"method": "pointwise"}]}
    entry = {"kind": "meta_evaluation", "gold": {"exact_match": True}, **scores}
    for good in ({"method": "probdiff", "column": "d"}, {"method": "pointwise", "column": "mean"}):
        recipe_with({**entry, "baseline": good})
    with pytest.raises(RecipeError, match=r"'probdiff.ell_first' is not among 'scores'"):
        recipe_with({**entry, "baseline": {"method": "probdiff", "column": "ell_first"}})


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
