"""The chat demo shows what its last run says, and of the others only why they failed."""

import pytest

from tools import demo_chat


def test_a_sample_shows_nothing(capfd):
    demo_chat._call("list", "recipes", is_sample=True)
    assert capfd.readouterr() == ("", "")


def test_a_sample_that_fails_says_why(capfd):
    with pytest.raises(SystemExit) as ended:
        demo_chat._call("check", "no-such-recipe.yaml", is_sample=True)
    assert ended.value.code == 2
    assert "no-such-recipe.yaml" in capfd.readouterr().err
