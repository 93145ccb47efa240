"""Permission to run a recipe's code: given with the recipe, or with the call."""

import pytest

from orchestrator.interface.checking import prepared_from
from tests.api.made import recipe


@pytest.mark.parametrize(
    ("by_recipe", "by_call", "allowed"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_code_is_allowed_by_the_recipe_or_by_the_call(by_recipe, by_call, allowed):
    prepared = prepared_from(recipe(allow_code=by_recipe), allow_code=by_call)
    assert prepared.allow_code is allowed
